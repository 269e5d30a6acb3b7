(function () {
  "use strict";
  var tip = document.createElement("div");
  tip.id = "tip";
  document.body.appendChild(tip);
  function seconds(s) {
    if (s >= 1) return s.toPrecision(4) + " s";
    return s >= 1e-3 ? (s * 1e3).toPrecision(3) + " ms" : (s * 1e6).toPrecision(3) + " \u00b5s";
  }
  // A title becomes ours once it is looked at, so that it shows at once and only once.
  function words(e) {
    for (; e && e !== document; e = e.parentNode) {
      if (e.hasAttribute && e.hasAttribute("data-tip")) return e.getAttribute("data-tip");
      if (!e.children) continue;
      for (var i = 0; i < e.children.length; i++)
        if (e.children[i].tagName === "title") {
          var text = e.children[i].textContent;
          e.setAttribute("data-tip", text);
          e.removeChild(e.children[i]);
          return text;
        }
      if (e.hasAttribute && e.hasAttribute("title")) {
        e.setAttribute("data-tip", e.getAttribute("title"));
        e.removeAttribute("title");
        return e.getAttribute("data-tip");
      }
    }
    return "";
  }
  function clock(e, x) {
    var svg = e.closest && e.closest("svg[data-from]");
    if (!svg) return "";
    var box = svg.getBoundingClientRect(), from = +svg.getAttribute("data-from"), to = +svg.getAttribute("data-to");
    return "\nat " + seconds(from + (to - from) * Math.max(0, Math.min(1, (x - box.left) / box.width)));
  }
  document.addEventListener("mousemove", function (ev) {
    var text = words(ev.target);
    if (!text) { tip.style.display = "none"; return; }
    tip.textContent = text + clock(ev.target, ev.clientX);
    tip.style.display = "block";
    var w = tip.offsetWidth, h = tip.offsetHeight;
    tip.style.left = Math.max(4, Math.min(ev.clientX + 14, innerWidth - w - 6)) + "px";
    tip.style.top = (ev.clientY + 18 + h > innerHeight ? ev.clientY - h - 12 : ev.clientY + 18) + "px";
  });
  document.addEventListener("mouseleave", function () { tip.style.display = "none"; });
  // Of the device under the pointer: its tensor group, its pipeline, its replicas.
  var all = [].slice.call(document.querySelectorAll(".d[data-r]")).map(function (e) {
    return { e: e, r: e.getAttribute("data-r").split(",") };
  });
  var map = document.querySelector("#topology");
  function differ(a, b) {
    var n = 0;
    for (var i = 0; i < a.length; i++) if (a[i] !== b[i]) n++;
    return n;
  }
  if (map) map.addEventListener("mouseover", function (ev) {
    var me = ev.target.getAttribute && ev.target.getAttribute("data-r");
    map.classList.toggle("dim", !!me);
    var mine = me ? me.split(",") : [];
    all.forEach(function (x) {
      x.e.classList.toggle("on", !!me && differ(x.r, mine) <= 1);
      x.e.classList.toggle("me", x.e === ev.target && !!me);
    });
  });
  if (map) map.addEventListener("mouseleave", function () {
    map.classList.remove("dim");
    all.forEach(function (x) { x.e.classList.remove("me"); });
  });
})();
