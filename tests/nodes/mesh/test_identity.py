"""The key file and the remembered ports."""

import pickle
from pathlib import Path

import pytest

from nodes.mesh import IdentityError, PeerDownError, RemoteError
from nodes.mesh.admission import HandshakeBudget, new_link_wins
from nodes.mesh.identity import KEY_FILE, load_or_create_key, load_ports, save_ports


def test_the_key_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    key = load_or_create_key(tmp_path / "node")
    assert load_or_create_key(tmp_path / "node") == key
    assert (tmp_path / "node" / KEY_FILE).stat().st_mode & 0o777 == 0o600
    assert [path.name for path in (tmp_path / "node").iterdir()] == [KEY_FILE]


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    load_or_create_key(tmp_path)
    (tmp_path / KEY_FILE).chmod(0o644)
    with pytest.raises(IdentityError, match="chmod 600"):
        load_or_create_key(tmp_path)


def test_a_damaged_key_is_refused(tmp_path: Path) -> None:
    load_or_create_key(tmp_path)
    (tmp_path / KEY_FILE).write_bytes(b"short")
    with pytest.raises(IdentityError, match="not a key"):
        load_or_create_key(tmp_path)


def test_ports_are_remembered_and_damage_costs_nothing_but_them(tmp_path: Path) -> None:
    save_ports(tmp_path, ["127.0.0.1:4000", "[::1]:4001"])
    assert load_ports(tmp_path) == {"127.0.0.1": 4000, "::1": 4001}
    (tmp_path / "mesh.ports").write_text("[1")
    assert load_ports(tmp_path) == {}


def test_two_nodes_that_dial_each_other_keep_the_same_connection() -> None:
    for old, new in (("a", "b"), ("b", "a")):
        wins = new_link_wins(same_boot=True, old_alive=True, old_dialer=old, new_dialer=new)
        assert wins is (new == "a")
    assert new_link_wins(same_boot=False, old_alive=True, old_dialer="a", new_dialer="b")


def test_the_handshake_budget_refills_with_time() -> None:
    now = [0.0]
    budget = HandshakeBudget(10, lambda: now[0])
    assert [budget.take() for _ in range(11)] == [True] * 10 + [False]
    now[0] = 0.5
    assert [budget.take() for _ in range(6)] == [True] * 5 + [False]


def test_errors_survive_pickling() -> None:
    for error in (RemoteError("x", code=142, peer="p"), PeerDownError("x", peer="p", sent=True)):
        assert vars(pickle.loads(pickle.dumps(error))) == vars(error)
