"""Lets Hypothesis make kio's types, of which it lacks one."""

from hypothesis import strategies as st
from kio.static.primitive import Records

st.register_type_strategy(Records, st.binary(max_size=200))
