package main

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	sessionTimeout = 6 * time.Second
	heartbeat      = 500 * time.Millisecond
	last           = "last"
)

var sessions = map[string]*kgo.GroupTransactSession{}

func openSession(ctx context.Context, asked *job, options []kgo.Opt) error {
	options = append(options,
		kgo.TransactionalID(asked.TransactionalID),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ConsumerGroup(asked.Group),
		kgo.ConsumeTopics(asked.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.SessionTimeout(sessionTimeout),
		kgo.HeartbeatInterval(heartbeat),
		kgo.FetchMaxWait(fetchWait),
	)
	session, err := kgo.NewGroupTransactSession(options...)
	if err != nil {
		return err
	}
	sessions[asked.Session] = session
	_, _, err = session.Client().ProducerID(ctx)
	return err
}

// process takes records and writes them. If it leaves the transaction open, the offsets are not in
// it yet: franz-go sends them at the end.
func process(ctx context.Context, asked *job) (any, error) {
	session := sessions[asked.Session]
	taken := []record{}
	written := []*kgo.Record{}
	for len(taken) < asked.Count {
		fetches := session.PollRecords(ctx, asked.Count-len(taken))
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		for _, fetched := range fetches.Records() {
			told, err := tell(fetched)
			if err != nil {
				return nil, err
			}
			taken = append(taken, told)
			value := append([]byte("done "), fetched.Value...)
			written = append(written, &kgo.Record{Topic: asked.Topic, Key: fetched.Key, Value: value})
		}
	}
	if err := session.Begin(); err != nil {
		return nil, err
	}
	if err := session.ProduceSync(ctx, written...).FirstErr(); err != nil {
		return nil, err
	}
	if asked.End == "open" {
		return taken, nil
	}
	return taken, finish(ctx, session, asked.End)
}

func finish(ctx context.Context, session *kgo.GroupTransactSession, end string) error {
	try := kgo.TransactionEndTry(end == "commit")
	committed, err := session.End(ctx, try)
	if err == nil && committed != (end == "commit") {
		return errors.New("the transaction was not committed")
	}
	return err
}

func readAll(ctx context.Context, asked *job, options []kgo.Opt) (any, error) {
	level := kgo.ReadUncommitted()
	if asked.Isolation == "read_committed" {
		level = kgo.ReadCommitted()
	}
	options = append(options, kgo.FetchIsolationLevel(level), kgo.FetchMaxWait(fetchWait),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{
			asked.Topic: {0: kgo.NewOffset().AtStart()}}))
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	records := []record{}
	for len(records) == 0 || string(records[len(records)-1].Value) != last {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		for _, fetched := range fetches.Records() {
			told, err := tell(fetched)
			if err != nil {
				return nil, err
			}
			records = append(records, told)
		}
	}
	return records, nil
}
