"""A broker under load while it is killed, its disk fills, and its topics change; and a judge."""
