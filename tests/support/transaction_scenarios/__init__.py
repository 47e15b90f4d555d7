"""Scenarios of transactions as text: events, and the effects that they must have.

A file starts with a comment on what it shows. Then come cases: an event, `----`, and the effects
that the state machine returns: records, answers, timers, and the markers that are due when the
records are committed. The transactional id is x unless `id=` says otherwise.

Requests; NAME stands for the request in the answers (fields are `name=value`). `spare=7` is the
producer id that an event has which needs one. With `append=not-available` or
`append=not-coordinator` its records are not written:

    init NAME      InitProducerId: producer=ID:EPOCH, timeout (ms), spare
    add NAME       AddPartitionsToTxn: producer, partitions=t:0,1;u:2, version
    commit NAME    EndTxn: producer, version, spare
    abort NAME     as commit
    timeout NAME   the transaction has been open for too long: producer, spare
    expire NAME    it is time to remove transactional ids
    written        the markers of a transaction are written: producer=ID:EPOCH of the markers

Other commands:

    version N      the finalized transaction.version is N from now on, 2 at first
    epoch N        the producer of x has that epoch, as after many transactions
    replicated     records are committed by `committed` from now on
    committed      all records are committed
    advance MS     time passes; timers that are due then happen
    show           prints the transactions; those that are not committed too
    load           the coordinator loads the records, and continues with what it finds

Answers that do not wait for the commit are `at once`.
"""
