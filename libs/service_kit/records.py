"""Rows go into a statement as records, by name: a table's columns are described once, and order has no say."""

from __future__ import annotations


class Columns:
    """The columns of a table that a service writes, as `name type, name type, …`.

    A statement that is made of it takes one parameter, a list of dicts. A column that a dict lacks is null there, and
    a name that is no column is left out.
    """

    def __init__(self, described: str, parameter: str = "$1") -> None:
        described = " ".join(described.split())
        self.names = ", ".join(column.split()[0] for column in described.split(", "))
        self.records = f"jsonb_to_recordset({parameter}) AS new ({described})"

    def insert_into(self, table: str, **more: str) -> str:
        """`INSERT INTO table … SELECT … FROM` the records, with the columns `more` from other parameters."""
        names = ", ".join([self.names, *more])
        values = ", ".join([self.names, *more.values()])
        return f"INSERT INTO {table} ({names}) SELECT {values} FROM {self.records} "  # noqa: S608
