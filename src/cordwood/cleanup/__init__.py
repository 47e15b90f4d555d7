"""Retention, compaction and erasure of logs.

`rules` say which records and segments go, and why the others stay; `plan` makes plans of them;
`access` pins and changes logs, stopped or running; `verification` compares; `engine` executes
plans, and `estimate` estimates what they would free; `schedule` says when and in which order, and
`erasure` removes records by key or condition. Each imports only those before it.
"""
