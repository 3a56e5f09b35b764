"""Delimited text: as fast as its types allow, and still row by row where something is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from connectors import delimited, files
from connectors.delimited import NUMBERS, TEXTS, TIMES, layout_of, names_in, tables
from replay.ingest import ingest

USED = {"arrival_s": TIMES, "prompt_tokens": NUMBERS, "tenant": TEXTS}


def read(path: Path) -> tuple[list[dict[str, object]], list[int], dict[str, tuple[int, list[int]]]]:
    found: list[dict[str, object]] = []
    places: list[int] = []
    reasons: dict[str, tuple[int, list[int]]] = {}
    for table, rows, dropped in tables(str(path), layout_of(str(path)), USED):
        found += table.to_pylist()
        places += rows.tolist()
        reasons |= dropped.reasons
    return found, places, reasons


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_what_parts_the_columns_is_seen_in_the_header(tmp_path: Path, delimiter: str) -> None:
    path = tmp_path / "log.csv"
    path.write_text("\n".join(delimiter.join(row) for row in (["arrival_s", "prompt_tokens"], ["1.5", "12"])))
    assert names_in(path.read_bytes()) == ["arrival_s", "prompt_tokens"]
    assert ingest([str(path)]).calls["prompt_tokens"].to_pylist() == [12]


def test_a_text_of_digits_stays_a_text(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("arrival_s,prompt_tokens,tenant\n1,2,007\n2,3,008\n")
    assert [row["tenant"] for row in read(path)[0]] == ["007", "008"]


@pytest.mark.parametrize("bad", ["1,2\n", "x,y,z\n", '9,9,"a\nb"\n', '9,9,"a""b"\n', "\n", "1,12.5,t\n", "1,2,\xff\n"])
@pytest.mark.parametrize("block_bytes", [40, 64 << 10])
def test_rows_are_the_same_however_the_file_is_cut_into_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: str, block_bytes: int
) -> None:
    good = [f"{k}.5,{k + 10},t{k}\n" for k in range(30)]
    path = tmp_path / "log.csv"
    path.write_text("arrival_s,prompt_tokens,tenant\n" + "".join([*good[:17], bad, *good[17:]]), encoding="latin-1")
    whole = read(path)
    monkeypatch.setattr(files, "BLOCK_BYTES", block_bytes)
    monkeypatch.setattr(files, "PART_BYTES", block_bytes)
    parts = read(path)
    texts = [[{key: str(value) for key, value in row.items()} for row in rows] for rows in (whole[0], parts[0])]
    numbers = [[float(row["prompt_tokens"]) for row in rows if row["prompt_tokens"] != "y"] for rows in texts]
    assert numbers[0] == numbers[1]
    assert [row["tenant"] for row in texts[0]] == [row["tenant"] for row in texts[1]]
    assert whole[1:] == parts[1:]
    assert len(whole[0]) + sum(count for count, _ in whole[2].values()) == 30 + (bad != "\n")


def test_quotes_alone_do_not_make_it_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log.csv"
    path.write_text('"arrival_s","prompt_tokens","tenant"\n' + '"1.5","12","a, b"\n' * 3)

    def never(*_: object) -> None:
        raise AssertionError("read row by row")

    monkeypatch.setattr(delimited.Reader, "row_by_row", never)
    rows, places, _ = read(path)
    assert rows == [{"arrival_s": 1.5, "prompt_tokens": 12, "tenant": "a, b"}] * 3
    assert places == [2, 3, 4]
