"""Which dataset a page speaks of: named in the address (`?dataset=`), chosen here, or stepped to."""

from __future__ import annotations

import streamlit as st


def pick_dataset(names: list[str]) -> str:
    """Draws the picker. One of `names`, which holds at least one."""
    asked = st.query_params.get("dataset") or st.session_state.get("dataset")
    if "dataset_name" not in st.session_state or st.session_state["dataset_name"] not in names:
        st.session_state["dataset_name"] = asked if asked in names else names[0]

    def step(by: int) -> None:
        at = names.index(st.session_state["dataset_name"])
        st.session_state["dataset_name"] = names[(at + by) % len(names)]

    with st.container(horizontal=True, vertical_alignment="bottom"):
        name = st.selectbox("Dataset", names, key="dataset_name", width=320)
        if len(names) > 1:
            st.button("Previous", key="dataset-previous", on_click=step, args=(-1,))
            st.button("Next", key="dataset-next", on_click=step, args=(1,))
    st.query_params["dataset"] = st.session_state["dataset"] = name  # a widget's own state ends with its page
    return str(name)
