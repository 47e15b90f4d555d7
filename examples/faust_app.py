# /// script
# requires-python = ">=3.11"
# dependencies = ["faust-streaming==0.15.3"]
# ///
"""A Faust program: it counts the orders of each book, and sends each count to a topic.

    uv run --script examples/faust_app.py worker

uv makes an environment for it alone, from the lines above: Faust needs an older click than
Cordwood. A test runs it as a process, with the address of the fixture,
`cordwood_broker.bootstrap_servers`. The counts are in a table, whose changelog is a compacted
topic, from which the next start has them.
"""

from __future__ import annotations

import os

import faust

app = faust.App(
    "bookshop",
    broker=f"kafka://{os.environ.get('KAFKA_BOOTSTRAP_SERVERS', 'localhost:9092')}",
    store="memory://",
    topic_partitions=1,
    web_enabled=False,
)
orders = app.topic("orders", key_type=str, value_serializer="raw")
counts = app.topic("counts", key_type=str, value_type=int)
sold = app.Table("sold", key_type=str, value_type=int, default=int)


@app.agent(orders)
async def count(stream: faust.StreamT[bytes]) -> None:
    """Counts an order."""
    async for book, _ in stream.items():
        sold[book] += 1
        await counts.send(key=book, value=sold[book])


if __name__ == "__main__":
    app.main()
