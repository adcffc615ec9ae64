"""The operations of the cases: how arguments for each are drawn, and what Python does.

An operation has the trees it works on and other arguments that JSON can hold. A share of the arguments is drawn wrong on
purpose: what raises in Python must raise in Graft.
"""

from . import arithmetic, indexing, join, keys, leaves, reductions, shape
from .registry import OPERATIONS
