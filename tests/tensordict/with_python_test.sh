#!/usr/bin/env bash
# Exchanges files with a Python that has torch and tensordict: $PYTHON, or that of bazelw, or python3. Arguments: the
# script, and the program that loads and writes.
set -euo pipefail
python=${PYTHON:-$HOME/.cache/graft/venv/bin/python}
[[ -x $python ]] || python=python3
if ! "$python" -c 'import tensordict' 2>/dev/null; then
  echo "skipped: $python has no tensordict"
  exit 0
fi
exec "$python" "$@"
