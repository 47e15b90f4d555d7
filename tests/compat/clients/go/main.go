// Command client is franz-go behind jobs in JSON: a line in, a line out. The argument is the broker.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const fetchWait = 100 * time.Millisecond

type record struct {
	Key       []byte                `json:"key"`
	Value     []byte                `json:"value"`
	Headers   [][2]*json.RawMessage `json:"headers"`
	Timestamp *int64                `json:"timestamp"`
	Offset    int64                 `json:"offset"`
	Partition int32                 `json:"partition"`
}

type job struct {
	Op         string            `json:"op"`
	Topic      string            `json:"topic"`
	TimeoutMs  int64             `json:"timeoutMs"`
	Codec      string            `json:"codec"`
	Idempotent bool              `json:"idempotent"`
	MaxBytes   int32             `json:"maxBytes"`
	Records    []record          `json:"records"`
	Start      string            `json:"start"`
	At         int64             `json:"at"`
	Count      int               `json:"count"`
	Reset      string            `json:"reset"`
	FetchBytes *int32            `json:"fetchBytes"`
	Group      string            `json:"group"`
	Partitions int32             `json:"partitions"`
	Configs    map[string]string `json:"configs"`
	Settings   map[string]string `json:"settings"`

	Session         string `json:"session"`
	TransactionalID string `json:"transactionalId"`
	End             string `json:"end"`
	Isolation       string `json:"isolation"`
}

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
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
	var lost *kgo.ErrDataLoss
	switch {
	case errors.Is(err, kerr.OffsetOutOfRange), errors.As(err, &lost):
		return "no_offset"
	case strings.Contains(err.Error(), "no prior committed offset"): // it has no name of its own
		return "no_offset"
	case errors.Is(err, kerr.TopicAlreadyExists):
		return "topic_exists"
	case errors.Is(err, kerr.ProducerFenced), errors.Is(err, kerr.InvalidProducerEpoch):
		return "fenced"
	}
	return "other"
}

func run(server string, asked *job) (any, error) {
	timeout := time.Duration(asked.TimeoutMs) * time.Millisecond
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	options := []kgo.Opt{kgo.SeedBrokers(server)}
	switch asked.Op {
	case "produce":
		return nil, produce(ctx, asked, options)
	case "consume":
		return consume(ctx, asked, options)
	case "consume_group":
		return consumeGroup(ctx, asked, options)
	case "open_session":
		return nil, openSession(ctx, asked, options)
	case "process":
		return process(ctx, asked)
	case "finish":
		return nil, finish(ctx, sessions[asked.Session], asked.End)
	case "close_session":
		sessions[asked.Session].Close()
		delete(sessions, asked.Session)
		return nil, nil
	case "read_all":
		return readAll(ctx, asked, options)
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return administer(ctx, asked, kadm.NewClient(client))
}

func produce(ctx context.Context, asked *job, options []kgo.Opt) error {
	options = append(options,
		kgo.ProducerBatchCompression(codecs[asked.Codec]),
		kgo.ProducerBatchMaxBytes(asked.MaxBytes),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(5*time.Millisecond),
		kgo.AllowAutoTopicCreation(),
	)
	if !asked.Idempotent {
		options = append(options,
			kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(1))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	records := make([]*kgo.Record, len(asked.Records))
	for i, told := range asked.Records {
		one := &kgo.Record{Topic: asked.Topic, Key: told.Key, Value: told.Value}
		if told.Timestamp != nil {
			one.Timestamp = time.UnixMilli(*told.Timestamp)
		}
		for _, header := range told.Headers {
			var decoded kgo.RecordHeader
			if err := json.Unmarshal(*header[0], &decoded.Key); err != nil {
				return err
			}
			if header[1] != nil {
				if err := json.Unmarshal(*header[1], &decoded.Value); err != nil {
					return err
				}
			}
			one.Headers = append(one.Headers, decoded)
		}
		records[i] = one
	}
	return client.ProduceSync(ctx, records...).FirstErr()
}

func reading(asked *job) []kgo.Opt {
	options := []kgo.Opt{kgo.FetchMaxWait(fetchWait)}
	if asked.FetchBytes != nil {
		options = append(options,
			kgo.FetchMaxBytes(*asked.FetchBytes), kgo.FetchMaxPartitionBytes(*asked.FetchBytes))
	}
	switch asked.Reset {
	case "earliest":
		options = append(options, kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	case "latest":
		options = append(options, kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd()))
	default:
		options = append(options, kgo.ConsumeResetOffset(kgo.NoResetOffset()))
	}
	return options
}

func consume(ctx context.Context, asked *job, options []kgo.Opt) (any, error) {
	offset := kgo.NewOffset()
	switch asked.Start {
	case "earliest":
		offset = offset.AtStart()
	case "latest":
		offset = offset.AtEnd()
	case "offset":
		offset = offset.At(asked.At)
	default:
		offset = offset.AfterMilli(asked.At)
	}
	options = append(options, reading(asked)...)
	options = append(options, kgo.ConsumePartitions(
		map[string]map[int32]kgo.Offset{asked.Topic: {0: offset}}))
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return read(ctx, asked, client)
}

func consumeGroup(ctx context.Context, asked *job, options []kgo.Opt) (any, error) {
	options = append(options, reading(asked)...)
	options = append(options,
		kgo.ConsumerGroup(asked.Group), kgo.ConsumeTopics(asked.Topic),
		kgo.Balancers(kgo.RangeBalancer()), kgo.DisableAutoCommit())
	if asked.Reset == "none" {
		options = append(options, kgo.ConsumeStartOffset(kgo.NewOffset().AtCommitted()))
	}
	if asked.Settings["group.protocol"] == "consumer" {
		options = append(options, kgo.ServerSideBalancer())
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	records, err := read(ctx, asked, client)
	if err != nil || len(records) == 0 {
		return records, err
	}
	last := records[len(records)-1]
	next := kgo.EpochOffset{Epoch: -1, Offset: last.Offset + 1}
	places := map[string]map[int32]kgo.EpochOffset{asked.Topic: {last.Partition: next}}
	var failed error
	client.CommitOffsetsSync(ctx, places, func(
		_ *kgo.Client, _ *kmsg.OffsetCommitRequest, answer *kmsg.OffsetCommitResponse, err error,
	) {
		failed = err
		if err == nil {
			failed = kerr.ErrorForCode(answer.Topics[0].Partitions[0].ErrorCode)
		}
	})
	return records, failed
}

func read(ctx context.Context, asked *job, client *kgo.Client) ([]record, error) {
	records := []record{}
	for len(records) < asked.Count {
		fetches := client.PollRecords(ctx, asked.Count-len(records))
		for _, failed := range fetches.Errors() {
			if errors.Is(failed.Err, context.DeadlineExceeded) {
				return records, nil
			}
			return nil, failed.Err
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

func tell(fetched *kgo.Record) (record, error) {
	timestamp := fetched.Timestamp.UnixMilli()
	told := record{
		Key:       fetched.Key,
		Value:     fetched.Value,
		Headers:   [][2]*json.RawMessage{},
		Timestamp: &timestamp,
		Offset:    fetched.Offset,
		Partition: fetched.Partition,
	}
	for _, header := range fetched.Headers {
		name, err := json.Marshal(header.Key)
		if err != nil {
			return told, err
		}
		value, err := json.Marshal(header.Value)
		if err != nil {
			return told, err
		}
		rawName, rawValue := json.RawMessage(name), json.RawMessage(value)
		told.Headers = append(told.Headers, [2]*json.RawMessage{&rawName, &rawValue})
	}
	return told, nil
}

func administer(ctx context.Context, asked *job, admin *kadm.Client) (any, error) {
	switch asked.Op {
	case "create_topic":
		configs := map[string]*string{}
		for name, value := range asked.Configs {
			configs[name] = &value
		}
		_, err := admin.CreateTopic(ctx, asked.Partitions, 1, configs, asked.Topic)
		return nil, err
	case "delete_topic":
		_, err := admin.DeleteTopic(ctx, asked.Topic)
		return nil, err
	case "describe_topic":
		return describe(ctx, asked.Topic, admin)
	}
	return nil, fmt.Errorf("no such op: %s", asked.Op)
}

func describe(ctx context.Context, topic string, admin *kadm.Client) (any, error) {
	listed, err := admin.ListTopics(ctx, topic)
	if err != nil {
		return nil, err
	}
	described, err := admin.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return nil, err
	}
	configs := map[string]*string{}
	for _, resource := range described {
		if resource.Err != nil {
			return nil, resource.Err
		}
		for _, config := range resource.Configs {
			configs[config.Key] = config.Value
		}
	}
	return map[string]any{"partitions": len(listed[topic].Partitions), "configs": configs}, nil
}
