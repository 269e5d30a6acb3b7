#!/bin/sh
# run.sh NAME: tests/eco/eco_NAME.py with the Python that WEFT_PYTHON names.
export PYTHONDONTWRITEBYTECODE=1
exec "${WEFT_PYTHON:-python3}" "$(dirname "$0")/eco_$1.py"
