#!/usr/bin/env bash
exec python3 tests/layering/check_layering.py
