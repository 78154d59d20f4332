"""A sample of the cases of tools/check/readers.py: equal data are equal in every container, or refused in one line."""

from collections import Counter

from readers import CONTAINERS, SCRIPTS, TYPES, run


def test_equal_data_are_equal_in_every_container() -> None:
    found = run(400, seed=1)
    assert [(case, said) for case, end, said in found if end == "wrong"] == []
    assert Counter(end for _, end, _ in found)["right"] > 200
    tried = {
        name
        for case, _, _ in found
        for name in (case.container, case.kind, case.script)
    }
    assert tried == {*CONTAINERS, *TYPES, *SCRIPTS}
