package main

import (
	"context"

	"github.com/IBM/sarama"
)

var sessions = map[string]*session{}

// A session is a producer with a transactional id and, from the first job on that processes, a member
// of a group.
type session struct {
	server, source, groupID string
	producer                sarama.SyncProducer
	member                  *member
}

func openSession(server string, asked *job) error {
	config := configuration()
	config.Producer.Transaction.ID = asked.TransactionalID
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Return.Successes = true
	config.Net.MaxOpenRequests = 1
	producer, err := sarama.NewSyncProducer([]string{server}, config)
	if err != nil {
		return err
	}
	sessions[asked.Session] = &session{
		server: server, source: asked.Topic, groupID: asked.Group, producer: producer}
	return nil
}

func (s *session) process(ctx context.Context, asked *job) (any, error) {
	if s.member == nil {
		joined, err := join(s.server, s.source, s.groupID)
		if err != nil {
			return nil, err
		}
		s.member = joined
	}
	taken := []record{}
	written := []*sarama.ProducerMessage{}
	offsets := map[string][]*sarama.PartitionOffsetMetadata{}
	var metadata *sarama.ConsumerGroupMetadata
	for len(taken) < asked.Count {
		select {
		case next := <-s.member.taken:
			taken = append(taken, tell(next.message))
			written = append(written, &sarama.ProducerMessage{
				Topic: asked.Topic,
				Key:   sarama.ByteEncoder(next.message.Key),
				Value: sarama.StringEncoder("done " + string(next.message.Value)),
			})
			offsets[s.source] = append(offsets[s.source], &sarama.PartitionOffsetMetadata{
				Partition: next.message.Partition, Offset: next.message.Offset + 1})
			metadata = sarama.NewConsumerGroupMetadataFromSession(next.session, s.groupID, nil)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if err := s.producer.BeginTxn(); err != nil {
		return nil, err
	}
	if err := s.producer.SendMessages(written); err != nil {
		return nil, err
	}
	if err := s.producer.AddOffsetsToTxnWithGroupMetadata(offsets, metadata); err != nil {
		return nil, err
	}
	return taken, s.finish(asked.End)
}

func (s *session) finish(end string) error {
	switch end {
	case "commit":
		return s.producer.CommitTxn()
	case "abort":
		if err := s.producer.AbortTxn(); err != nil {
			return err
		}
		// The next member begins at the committed offsets.
		return s.leave()
	}
	return nil
}

func (s *session) leave() error {
	left := s.member
	s.member = nil
	if left == nil {
		return nil
	}
	left.cancel()
	<-left.ended
	return left.group.Close()
}

type taking struct {
	message *sarama.ConsumerMessage
	session sarama.ConsumerGroupSession
}

// A member hands over one record at a time.
type member struct {
	group  sarama.ConsumerGroup
	taken  chan taking
	cancel context.CancelFunc
	ended  chan struct{}
}

func join(server, source, groupID string) (*member, error) {
	config := configuration()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Group.Session.Timeout = sessionTimeout
	config.Consumer.Group.Heartbeat.Interval = heartbeat
	group, err := sarama.NewConsumerGroup([]string{server}, groupID, config)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	joined := &member{group: group, taken: make(chan taking), cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(joined.ended)
		for ctx.Err() == nil {
			// It returns when the group is divided again.
			_ = group.Consume(ctx, []string{source}, joined)
		}
	}()
	return joined, nil
}

func (m *member) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (m *member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m *member) ConsumeClaim(
	session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim,
) error {
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			select {
			case m.taken <- taking{message, session}:
			case <-session.Context().Done():
				return nil
			}
		case <-session.Context().Done():
			return nil
		}
	}
}
