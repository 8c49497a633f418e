"""Tables like those of TPC-H, small, and changing: rows come, go and are replaced as time goes on.

The values that the queries ask for come more often than the standard draws them, so that every query has something to
find in tables of a hundred orders.
"""

from __future__ import annotations

import random
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from everwhen.core.time import INF
from everwhen.stream.element import Adjust, Cti, Element, Insert

DECLARATIONS = """
CREATE CONSTANT RELATION region (r_regionkey INT KEY, r_name TEXT);
CREATE CONSTANT RELATION nation (n_nationkey INT KEY, n_name TEXT, n_regionkey INT);
CREATE VARYING RELATION supplier (s_suppkey INT KEY, s_name TEXT, s_address TEXT, s_nationkey INT, s_phone TEXT,
  s_acctbal DECIMAL(12, 2), s_comment TEXT);
CREATE VARYING RELATION part (p_partkey INT KEY, p_name TEXT, p_mfgr TEXT, p_brand TEXT, p_type TEXT, p_size INT,
  p_container TEXT);
CREATE VARYING RELATION partsupp (ps_partkey INT, ps_suppkey INT, ps_availqty INT, ps_supplycost DECIMAL(12, 2),
  KEY (ps_partkey, ps_suppkey));
CREATE VARYING RELATION customer (c_custkey INT KEY, c_name TEXT, c_address TEXT, c_nationkey INT, c_phone TEXT,
  c_acctbal DECIMAL(12, 2), c_mktsegment TEXT, c_comment TEXT);
CREATE VARYING RELATION orders (o_orderkey INT KEY, o_custkey INT, o_orderstatus TEXT, o_totalprice DECIMAL(12, 2),
  o_orderdate DATE, o_orderpriority TEXT, o_shippriority INT, o_comment TEXT);
CREATE VARYING RELATION lineitem (l_orderkey INT, l_partkey INT, l_suppkey INT, l_linenumber INT,
  l_quantity DECIMAL(12, 2), l_extendedprice DECIMAL(12, 2), l_discount DECIMAL(4, 2), l_tax DECIMAL(4, 2),
  l_returnflag TEXT, l_linestatus TEXT, l_shipdate DATE, l_commitdate DATE, l_receiptdate DATE, l_shipinstruct TEXT,
  l_shipmode TEXT, KEY (l_orderkey, l_linenumber));
"""
NATIONS = (
    ("ALGERIA", 0), ("BRAZIL", 1), ("CANADA", 1), ("FRANCE", 3), ("GERMANY", 3), ("INDIA", 2), ("CHINA", 2),
    ("SAUDI ARABIA", 4), ("JAPAN", 2), ("KENYA", 0),
)  # fmt: skip
REGIONS = ("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST")
TYPES = ("ECONOMY ANODIZED STEEL", "MEDIUM POLISHED BRASS", "PROMO BURNISHED COPPER", "STANDARD PLATED BRASS")
CONTAINERS = {
    "Brand#12": ("SM CASE", "SM BOX", "SM PKG", "LG BOX"),
    "Brand#23": ("MED BOX", "MED BOX", "MED BAG", "SM PACK"),
    "Brand#34": ("LG CASE", "LG BOX", "LG PKG", "MED BOX"),
    "Brand#45": ("JUMBO BAG", "MED BOX"),
}
BRANDS = ("Brand#12", "Brand#23", "Brand#23", "Brand#34", "Brand#45")
DAYS = (date(1993, 1, 1), date(1993, 7, 1), date(1993, 10, 1), date(1994, 1, 1), date(1995, 1, 20), date(1995, 8, 10))
NAMES = ("forest green", "green lace", "navy forest", "forest mint", "plum rose")
SEGMENTS = ("BUILDING", "AUTOMOBILE", "MACHINERY")
PRIORITIES = ("1-URGENT", "2-HIGH", "3-MEDIUM", "5-LOW")
MODES = ("MAIL", "SHIP", "AIR", "AIR REG", "AIR", "TRUCK")

Row = dict[str, Any]
Event = tuple[int, int, Row]


def money(rng: random.Random, low: float, high: float) -> Decimal:
    return Decimal(rng.randint(int(low * 100), int(high * 100))).scaleb(-2)


class Tables:
    """The rows of every table with their lifetimes, between 0 and `span`."""

    def __init__(self, seed: int, orders: int, span: int = 100) -> None:
        self.rng = rng = random.Random(seed)
        self.span = span
        self.rows: dict[str, list[Event]] = {
            "region": [(0, INF, {"r_regionkey": i, "r_name": name}) for i, name in enumerate(REGIONS)],
            "nation": [
                (0, INF, {"n_nationkey": i, "n_name": name, "n_regionkey": region})
                for i, (name, region) in enumerate(NATIONS)
            ],
        }
        suppliers, parts, customers = max(6, orders // 8), max(8, orders // 2), max(6, orders // 3)
        self.rows["supplier"] = [e for i in range(suppliers) for e in self._versions(lambda i=i: self._supplier(i))]
        self.rows["part"] = [e for i in range(parts) for e in self._versions(lambda i=i: self._part(i))]
        pairs = {(p, rng.randrange(suppliers)) for p in range(parts) for _ in range(3)}
        self.rows["partsupp"] = [
            e for p, s in sorted(pairs) for e in self._versions(lambda p=p, s=s: self._partsupp(p, s))
        ]
        self.rows["customer"] = [e for i in range(customers) for e in self._versions(lambda i=i: self._customer(i))]
        self.rows["orders"], self.rows["lineitem"] = [], []
        offered = sorted(pairs)
        for i in range(orders):
            begin, days = rng.choice(((date(1992, 1, 1), 2400), *((day, 100) for day in DAYS)))
            day = begin + timedelta(days=rng.randrange(days))
            self.rows["orders"] += self._versions(lambda i=i, day=day: self._order(i, customers, day))
            for line in range(7 if i % 3 == 0 else rng.randint(1, 5)):
                pair = rng.choice(offered)
                self.rows["lineitem"] += self._versions(
                    lambda i=i, line=line, pair=pair, day=day: self._line(i, line, pair, day)
                )

    def _versions(self, row: Any) -> list[Event]:
        """A row from some time on, perhaps replaced, perhaps gone."""
        rng = self.rng
        at = rng.randrange(self.span // 2)
        found = []
        while True:
            if rng.random() < 0.6:
                return [*found, (at, INF, row())]
            end = rng.randrange(at + 1, self.span + 1)
            found.append((at, end, row()))
            if end >= self.span or rng.random() < 0.3:
                return found
            at = end

    def _supplier(self, i: int) -> Row:
        rng = self.rng
        nation = rng.randrange(len(NATIONS))
        comment = rng.choice(("quick", "Customer slow Complaints", "careful"))
        return {
            "s_suppkey": i, "s_name": f"Supplier#{i}", "s_address": f"street {i}", "s_nationkey": nation,
            "s_phone": f"{10 + nation}-555-{i}", "s_acctbal": money(rng, -100, 9000), "s_comment": comment,
        }  # fmt: skip

    def _part(self, i: int) -> Row:
        rng = self.rng
        brand = rng.choice(BRANDS)
        return {
            "p_partkey": i, "p_name": rng.choice(NAMES), "p_mfgr": f"Manufacturer#{i % 5}",
            "p_brand": brand, "p_type": rng.choice(TYPES), "p_size": rng.choice((1, 3, 3, 9, 14, 15, 15, 23, 49)),
            "p_container": rng.choice(CONTAINERS[brand]),
        }  # fmt: skip

    def _partsupp(self, p: int, s: int) -> Row:
        rng = self.rng
        return {
            "ps_partkey": p,
            "ps_suppkey": s,
            "ps_availqty": rng.randrange(1, 500),
            "ps_supplycost": money(rng, 1, 100),
        }

    def _customer(self, i: int) -> Row:
        rng = self.rng
        nation = rng.randrange(len(NATIONS))
        return {
            "c_custkey": i, "c_name": f"Customer#{i}", "c_address": f"road {i}", "c_nationkey": nation,
            "c_phone": f"{rng.choice((13, 31, 23, 29, 40))}-555-{i}", "c_acctbal": money(rng, -500, 9000),
            "c_mktsegment": rng.choice(SEGMENTS), "c_comment": rng.choice(("a", "b")),
        }  # fmt: skip

    def _order(self, i: int, customers: int, day: date) -> Row:
        rng = self.rng
        return {
            "o_orderkey": i, "o_custkey": rng.randrange(customers * 2 // 3), "o_orderstatus": rng.choice("FFO"),
            "o_totalprice": money(rng, 100, 5000), "o_orderdate": day, "o_orderpriority": rng.choice(PRIORITIES),
            "o_shippriority": 0, "o_comment": rng.choice(("plain", "the special big requests", "none")),
        }  # fmt: skip

    def _line(self, order: int, line: int, pair: tuple[int, int], day: date) -> Row:
        rng = self.rng
        ship = day + timedelta(days=rng.randrange(1, 60))
        quantity = rng.randrange(44, 51) if order % 3 == 0 and rng.random() < 0.95 else rng.randrange(1, 30)
        return {
            "l_orderkey": order, "l_partkey": pair[0], "l_suppkey": pair[1], "l_linenumber": line,
            "l_quantity": Decimal(quantity), "l_extendedprice": money(rng, 10, 2000),
            "l_discount": Decimal(rng.randrange(0, 11)).scaleb(-2), "l_tax": Decimal(rng.randrange(0, 9)).scaleb(-2),
            "l_returnflag": rng.choice("RAN"), "l_linestatus": rng.choice("OF"), "l_shipdate": ship,
            "l_commitdate": day + timedelta(days=rng.randrange(20, 60)),
            "l_receiptdate": ship + timedelta(days=rng.randrange(1, 30)),
            "l_shipinstruct": rng.choice(("DELIVER IN PERSON", "DELIVER IN PERSON", "NONE")),
            "l_shipmode": rng.choice(MODES),
        }  # fmt: skip

    # -- how they arrive, and what there is at an instant ----------------------------------------------------------

    def elements(self, name: str) -> list[Element]:
        """Rows in disorder; of those that end, some end only by a correction."""
        rng = random.Random(f"{name} {self.span}")
        found: list[Element] = []
        for vs, ve, row in sorted(self.rows[name], key=lambda e: e[0] + rng.randrange(12)):
            if ve != INF and rng.random() < 0.5:
                found += [Insert(vs, INF, row), Adjust(vs, INF, ve, row)]
            else:
                found.append(Insert(vs, ve, row))
        return [*found, Cti(INF)]

    def table(self, name: str) -> pa.Table:
        """All rows with their lifetimes."""
        rows = [{**row, "vs_": vs, "ve_": ve} for vs, ve, row in self.rows[name]]
        return pa.Table.from_pylist(rows)

    def instants(self) -> list[int]:
        """Where something changes."""
        return sorted({t for rows in self.rows.values() for vs, ve, _ in rows for t in (vs, ve) if t != INF})
