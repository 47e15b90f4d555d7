"""A FastStream program against a real broker: `pytest examples/test_faststream.py`.

`shop` is what a shop would run: a receipt for each order. FastStream's own `TestKafkaBroker`
replaces Kafka by memory; here the program has groups, offsets and a clock. It needs
`faststream[kafka]`.
"""

from __future__ import annotations

import asyncio

from faststream.kafka import KafkaBroker

from cordwood.testing.broker import RunningBroker


def shop(servers: str) -> KafkaBroker:
    """The program: a receipt for each order."""
    program = KafkaBroker(servers)

    @program.subscriber("orders", group_id="shop", auto_offset_reset="earliest")
    @program.publisher("receipts")
    async def sell(order: str) -> str:
        return f"sold: {order}"

    return program


async def receipt_of(order: str, servers: str) -> str:
    """Runs the program, and sends it an order."""
    program = shop(servers)
    receipts: asyncio.Queue[str] = asyncio.Queue()

    @program.subscriber("receipts", group_id="test", auto_offset_reset="earliest")
    async def note(receipt: str) -> None:
        await receipts.put(receipt)

    async with program:
        await program.start()
        await program.publish(order, "orders")
        return await asyncio.wait_for(receipts.get(), 30)


def test_an_order_is_answered_with_a_receipt(cordwood_broker: RunningBroker) -> None:
    """The order is in the topic for a week, and then gone."""
    answer = asyncio.run(receipt_of("one book", cordwood_broker.bootstrap_servers))
    assert answer == "sold: one book"
    cordwood_broker.advance(days=8)
    assert "00000000000000000001.log" in cordwood_broker.files("orders-0")
