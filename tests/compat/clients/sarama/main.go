// Command client is Sarama in transactions behind jobs in JSON: a line in, a line out. The argument
// is the broker.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/IBM/sarama"
)

const (
	sessionTimeout = 6 * time.Second
	heartbeat      = 500 * time.Millisecond
	fetchWait      = 100 * time.Millisecond
	last           = "last"
)

type record struct {
	Key       []byte     `json:"key"`
	Value     []byte     `json:"value"`
	Headers   [][]string `json:"headers"`
	Timestamp int64      `json:"timestamp"`
	Offset    int64      `json:"offset"`
	Partition int32      `json:"partition"`
}

type job struct {
	Op              string `json:"op"`
	Topic           string `json:"topic"`
	TimeoutMs       int64  `json:"timeoutMs"`
	Group           string `json:"group"`
	Session         string `json:"session"`
	TransactionalID string `json:"transactionalId"`
	Count           int    `json:"count"`
	End             string `json:"end"`
	Isolation       string `json:"isolation"`
}

func main() {
	server := os.Args[1]
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := json.NewEncoder(os.Stdout)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var asked job
		answer := map[string]any{}
		if err = json.Unmarshal(line, &asked); err == nil {
			answer["ok"], err = run(server, &asked)
		}
		if err != nil {
			answer = map[string]any{"error": kind(err), "message": err.Error()}
		}
		if err := out.Encode(answer); err != nil {
			return
		}
	}
}

func kind(err error) string {
	if errors.Is(err, sarama.ErrProducerFenced) || errors.Is(err, sarama.ErrInvalidProducerEpoch) {
		return "fenced"
	}
	return "other"
}

func run(server string, asked *job) (any, error) {
	timeout := time.Duration(asked.TimeoutMs) * time.Millisecond
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	switch asked.Op {
	case "open_session":
		return nil, openSession(server, asked)
	case "process":
		return sessions[asked.Session].process(ctx, asked)
	case "finish":
		return nil, sessions[asked.Session].finish(asked.End)
	case "close_session":
		session := sessions[asked.Session]
		delete(sessions, asked.Session)
		return nil, session.leave()
	case "read_all":
		return readAll(ctx, server, asked)
	}
	return nil, fmt.Errorf("no such op: %s", asked.Op)
}

func configuration() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.V2_8_0_0
	config.Consumer.MaxWaitTime = fetchWait
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	return config
}

func readAll(ctx context.Context, server string, asked *job) (any, error) {
	config := configuration()
	if asked.Isolation == "read_uncommitted" {
		config.Consumer.IsolationLevel = sarama.ReadUncommitted
	}
	consumer, err := sarama.NewConsumer([]string{server}, config)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	reader, err := consumer.ConsumePartition(asked.Topic, 0, sarama.OffsetOldest)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	records := []record{}
	for len(records) == 0 || string(records[len(records)-1].Value) != last {
		select {
		case message := <-reader.Messages():
			records = append(records, tell(message))
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return records, nil
}

func tell(message *sarama.ConsumerMessage) record {
	return record{
		Key:       message.Key,
		Value:     message.Value,
		Headers:   [][]string{},
		Timestamp: message.Timestamp.UnixMilli(),
		Offset:    message.Offset,
		Partition: message.Partition,
	}
}
