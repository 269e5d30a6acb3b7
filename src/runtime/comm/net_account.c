/* What the system says of a connection.  Apart: linux/tcp.h has what netinet/tcp.h lacks, and the
 * two do not go together. */
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <sys/socket.h>

#include "comm/net_tcp.h"

bool weft_comm__tcp_account(int fd, weft_comm_link *out)
{
    struct tcp_info x     = {0};
    socklen_t       bytes = sizeof x;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &x, &bytes)) return false;
    if (bytes < offsetof(struct tcp_info, tcpi_sndbuf_limited)) return false;
    out->bytes  = (int64_t)x.tcpi_bytes_acked;
    out->busy_s = 1e-6 * (double)(x.tcpi_busy_time - x.tcpi_rwnd_limited);
    return true;
}
