"""Queries of Nexmark in Flink SQL, over the tables of `flink_java/src/Nexmark.java`; results are longs and texts.

They are those of the benchmark, with these differences: fields that are texts are numbers where no query looks at the
text, prices are converted in whole numbers, q4 gives count and sum instead of their quotient, q7 is the inner query
(the highest price of a window, without a join with the bids of that price), q16 has no minute, q19 no rank.
Left out: q6, which Flink SQL cannot plan, q10 and q13, which need files and a table outside.
"""

from __future__ import annotations

_HOPS = (
    "SELECT auction, COUNT(*) AS n, window_start AS s, window_end AS e FROM TABLE(HOP(TABLE bids, "
    "DESCRIPTOR(happened), INTERVAL '2' SECOND, INTERVAL '10' SECOND)) GROUP BY auction, window_start, window_end"
)
_RANKS = ("price < 10000", "price >= 10000 AND price < 1000000", "price >= 1000000")


def _tumbled(table: str, columns: str, of: str, time: str = "happened", seconds: int = 10) -> str:
    return (
        f"SELECT {columns} FROM TABLE(TUMBLE(TABLE {table}, DESCRIPTOR({time}), INTERVAL '{seconds}' SECOND)) "
        f"GROUP BY {of}window_start, window_end"
    )


def _end(name: str = "window_end") -> str:
    """The end of a window in milliseconds, which are whole seconds here."""
    return f"TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', {name}) * CAST(1000 AS BIGINT)"


def _counts(what: str) -> str:
    """All of it, and those of each rank of prices."""
    return ", ".join([f"COUNT({what})", *[f"COUNT({what}) FILTER (WHERE {rank})" for rank in _RANKS]])


_STATISTICS = ", ".join(map(_counts, ("*", "DISTINCT bidder", "DISTINCT auction")))
_OPEN_BIDS = "FROM auctions A, bids B WHERE A.auction = B.auction AND B.t BETWEEN A.t AND A.expires"
_CHANNEL_ID = "REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2)"

QUERIES: dict[str, str] = {
    "q0": "SELECT auction, bidder, price, t, channel FROM bids",
    "q1": "SELECT auction, bidder, price * 908 / 1000, t, channel FROM bids",
    "q2": "SELECT auction, price FROM bids WHERE MOD(auction, 123) = 0",
    "q3": (
        "SELECT P.person, P.city, P.state, A.auction FROM auctions A JOIN persons P ON A.seller = P.person "
        "WHERE A.category = 10 AND P.state < 3"
    ),
    "q4": (
        "SELECT category, COUNT(*), SUM(final) FROM (SELECT MAX(B.price) AS final, A.category "
        f"{_OPEN_BIDS} GROUP BY A.auction, A.category) GROUP BY category"
    ),
    "q5": (
        f"SELECT {_end('C.e')}, C.auction, C.n FROM ({_HOPS}) C JOIN "
        f"(SELECT MAX(n) AS most, s, e FROM ({_HOPS}) GROUP BY s, e) M ON C.s = M.s AND C.e = M.e AND C.n >= M.most"
    ),
    "q7": _tumbled("bids", f"{_end()}, MAX(price)", ""),
    "q8": (
        f"SELECT P.person, {_end('P.e')} FROM "
        f"({_tumbled('persons', 'person, window_start AS s, window_end AS e', 'person, ')}) P JOIN "
        f"({_tumbled('auctions', 'seller, window_start AS s, window_end AS e', 'seller, ')}) A "
        "ON P.person = A.seller AND P.s = A.s AND P.e = A.e"
    ),
    "q9": (
        "SELECT auction, bidder, price, t FROM (SELECT B.auction, B.bidder, B.price, B.t, ROW_NUMBER() OVER "
        f"(PARTITION BY A.auction ORDER BY B.price DESC, B.t ASC, B.bidder ASC) AS n {_OPEN_BIDS}) WHERE n <= 1"
    ),
    "q11": (
        "SELECT bidder, MAX(t) + 10000, COUNT(*) FROM "
        "TABLE(SESSION(TABLE bids PARTITION BY bidder, DESCRIPTOR(happened), INTERVAL '10' SECOND)) "
        "GROUP BY bidder, window_start, window_end"
    ),
    "q12": _tumbled("bids", "bidder, CAST(0 AS BIGINT), COUNT(*)", "bidder, ", "clock", 1),
    "q14": (
        "SELECT auction, bidder, price * 908 / 1000, CASE WHEN t / 3600000 BETWEEN 8 AND 18 THEN 'dayTime' "
        "WHEN t / 3600000 <= 6 OR t / 3600000 >= 20 THEN 'nightTime' ELSE 'otherTime' END, t, extra, "
        "count_char(extra, 'c') FROM texts WHERE price * 908 / 1000 > 1000000 AND price * 908 / 1000 < 50000000"
    ),
    "q15": f"SELECT t / 86400000, {_STATISTICS} FROM bids GROUP BY t / 86400000",
    "q16": f"SELECT channel, {_STATISTICS} FROM bids GROUP BY channel, t / 86400000",
    "q17": (
        f"SELECT auction, {_counts('*')}, MIN(price), MAX(price), SUM(price) FROM bids "
        "GROUP BY auction, t / 86400000"
    ),
    "q18": (
        "SELECT auction, bidder, t FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction "
        "ORDER BY happened DESC) AS n FROM bids) WHERE n <= 1"
    ),
    "q19": (
        "SELECT auction, price FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS n "
        "FROM bids) WHERE n <= 10"
    ),
    "q20": (
        "SELECT B.auction, B.bidder, B.price, A.seller FROM bids B JOIN auctions A ON B.auction = A.auction "
        "WHERE A.category = 10"
    ),
    "q21": (
        "SELECT auction, bidder, price, channel, CASE WHEN LOWER(channel) = 'apple' THEN '0' "
        "WHEN LOWER(channel) = 'google' THEN '1' WHEN LOWER(channel) = 'facebook' THEN '2' "
        f"WHEN LOWER(channel) = 'baidu' THEN '3' ELSE {_CHANNEL_ID} END FROM texts "
        f"WHERE {_CHANNEL_ID} IS NOT NULL OR LOWER(channel) IN ('apple', 'google', 'facebook', 'baidu')"
    ),
    "q22": (
        "SELECT auction, bidder, price, channel, SPLIT_INDEX(url, '/', 3), SPLIT_INDEX(url, '/', 4), "
        "SPLIT_INDEX(url, '/', 5) FROM texts"
    ),
}
