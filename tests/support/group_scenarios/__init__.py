"""Scenarios of groups as text: events, and the effects that they must have.

A file starts with a comment on what it shows. Then come cases: an event, `----`, and the effects in
the order in which the state machine returns them.

Requests (fields are `name=value`); NAME stands for the request in the answers, and with
`append=fails` its records are not written:

    beat NAME     ConsumerGroupHeartbeat: member, epoch, topics=t,u, regex, owned=t:0,1;u:2,
                  instance, assignor, timeout (of a rebalance, in ms)
    join NAME     JoinGroup: member, instance, rebalance, old-client, protocols=range:metadata,
                  or topics=t,u and owned for the metadata of a consumer
    sync NAME     SyncGroup: member, instance, generation, assign=member:data,
                  or gives=member@t:0,1/member@t:2 for the partitions of consumers
    heartbeat NAME, leave NAME, commit NAME, delete-group NAME

Other commands:

    topic T N     a topic has N partitions from now on; it is created if there is none
    no-topic T    a topic is deleted
    set           settings of consumer groups change: assignment_interval_ms=0
    advance MS    time passes; tasks end, and timers that are due then happen in their order; with
                  `append=fails` their records are not written
    group         prints the group
    reload        prints the group as a load of the records finds it
    restart       the coordinator loads the records, and continues with what it finds

Partitions are written `t:0,1;u:2`, and `-` stands for none.

The form is that of the datadriven tests of etcd-io/raft.
"""
