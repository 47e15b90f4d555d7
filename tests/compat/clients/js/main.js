// KafkaJS behind jobs in JSON: a line in, a line out. The argument is the broker.
"use strict";

const readline = require("node:readline");
const { CompressionCodecs, CompressionTypes, Kafka, logLevel } = require("kafkajs");
const lz4 = require("lz4-napi");
const snappy = require("snappy");
const { ZstdCodec } = require("zstd-codec");
const transactions = require("./transactions.js");

const PARTITION = 0;
const FETCH_WAIT_MS = 100;
const TOPIC_EXISTS = "TOPIC_ALREADY_EXISTS";
const KINDS = {
  [TOPIC_EXISTS]: "topic_exists",
  PRODUCER_FENCED: "fenced",
  INVALID_PRODUCER_EPOCH: "fenced",
};
const NAMES = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
};

// Java's snappy streams: a magic, two versions, then blocks each with its length.
const XERIAL_MAGIC = Buffer.from([0x82, 0x53, 0x4e, 0x41, 0x50, 0x50, 0x59, 0x00]);
const XERIAL_HEADER_BYTES = 16;

async function readSnappy(data) {
  if (!data.subarray(0, XERIAL_MAGIC.length).equals(XERIAL_MAGIC)) {
    return snappy.uncompress(data);
  }
  const blocks = [];
  for (let at = XERIAL_HEADER_BYTES; at < data.length; ) {
    const length = data.readInt32BE(at);
    blocks.push(await snappy.uncompress(data.subarray(at + 4, at + 4 + length)));
    at += 4 + length;
  }
  return Buffer.concat(blocks);
}

function registerCodecs(zstd) {
  CompressionCodecs[CompressionTypes.Snappy] = () => ({
    compress: async (encoder) => snappy.compress(encoder.buffer),
    decompress: readSnappy,
  });
  CompressionCodecs[CompressionTypes.LZ4] = () => ({
    compress: async (encoder) => lz4.compressFrame(encoder.buffer),
    decompress: async (data) => lz4.decompressFrame(data),
  });
  const streaming = new zstd.Streaming();
  CompressionCodecs[CompressionTypes.ZSTD] = () => ({
    compress: async (encoder) => Buffer.from(streaming.compress(encoder.buffer)),
    decompress: async (data) => Buffer.from(streaming.decompress(data)),
  });
}

const decoded = (text) => (text === null ? null : Buffer.from(text, "base64"));
const encoded = (data) => (data === null || data === undefined ? null : data.toString("base64"));

function headersOf(told) {
  const headers = {};
  for (const [name, value] of told) {
    (headers[name] ??= []).push(decoded(value));
  }
  return headers;
}

function tell(message) {
  const headers = Object.entries(message.headers ?? {}).flatMap(([name, values]) =>
    [values].flat().map((value) => [name, encoded(value)]),
  );
  return {
    key: encoded(message.key),
    value: encoded(message.value),
    headers,
    timestamp: Number(message.timestamp),
    offset: Number(message.offset),
  };
}

async function produce(kafka, job) {
  const producer = kafka.producer({
    idempotent: job.idempotent,
    maxInFlightRequests: 1,
  });
  await producer.connect();
  try {
    const messages = job.records.map((record) => ({
      key: decoded(record.key),
      value: decoded(record.value),
      headers: headersOf(record.headers),
      partition: PARTITION,
      timestamp: record.timestamp === null ? undefined : String(record.timestamp),
    }));
    const compression = NAMES[job.codec];
    await producer.send({ topic: job.topic, messages, acks: -1, compression });
  } finally {
    await producer.disconnect();
  }
  return null;
}

// KafkaJS has consumers in groups only: one without offsets of its own stands in for none.
async function consume(kafka, job) {
  const admin = kafka.admin();
  await admin.connect();
  let start;
  try {
    if (job.start === "timestamp") {
      [start] = await admin.fetchTopicOffsetsByTimestamp(job.topic, job.at);
    } else if (job.start !== "offset") {
      const [ends] = await admin.fetchTopicOffsets(job.topic);
      start = { offset: job.start === "latest" ? ends.high : ends.low };
    }
  } finally {
    await admin.disconnect();
  }
  const group = `alone-${process.pid}-${Math.random()}`;
  return readGroup(kafka, { ...job, group }, start?.offset ?? String(job.at));
}

async function readGroup(kafka, job, offset) {
  const limits = job.fetchBytes ? { maxBytesPerPartition: job.fetchBytes, maxBytes: job.fetchBytes } : {};
  const consumer = kafka.consumer({
    groupId: job.group,
    maxWaitTimeInMs: FETCH_WAIT_MS,
    allowAutoTopicCreation: false,
    ...limits,
  });
  const records = [];
  await consumer.connect();
  try {
    await consumer.subscribe({ topic: job.topic, fromBeginning: job.reset === "earliest" });
    let enough;
    const done = new Promise((resolve) => (enough = resolve));
    const timer = setTimeout(enough, job.timeoutMs);
    await consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        if (records.length < job.count) {
          records.push({ ...tell(message), partition });
        }
        if (records.length === job.count) {
          enough();
        }
      },
    });
    if (offset !== undefined) {
      consumer.seek({ topic: job.topic, partition: PARTITION, offset });
    }
    await done;
    clearTimeout(timer);
    if (offset === undefined && records.length > 0) {
      const { partition, offset: last } = records.at(-1);
      const next = String(last + 1);
      await consumer.commitOffsets([{ topic: job.topic, partition, offset: next }]);
    }
  } finally {
    await consumer.disconnect();
  }
  return records;
}

async function administer(kafka, work) {
  const admin = kafka.admin();
  await admin.connect();
  try {
    return await work(admin);
  } finally {
    await admin.disconnect();
  }
}

const OPERATIONS = {
  ...transactions.operations(tell),
  produce,
  consume,
  consume_group: (kafka, job) => readGroup(kafka, job, undefined),
  create_topic: (kafka, job) =>
    administer(kafka, async (admin) => {
      const configEntries = Object.entries(job.configs).map(([name, value]) => ({ name, value }));
      const topics = [{ topic: job.topic, numPartitions: job.partitions, configEntries }];
      if (!(await admin.createTopics({ topics, waitForLeaders: true }))) {
        throw Object.assign(new Error(TOPIC_EXISTS), { type: TOPIC_EXISTS });
      }
      return null;
    }),
  describe_topic: (kafka, job) =>
    administer(kafka, async (admin) => {
      const { topics } = await admin.fetchTopicMetadata({ topics: [job.topic] });
      const resources = [{ type: 2, name: job.topic }];
      const told = await admin.describeConfigs({ resources, includeSynonyms: false });
      const entries = told.resources[0].configEntries;
      const configs = Object.fromEntries(entries.map((e) => [e.configName, e.configValue]));
      return { partitions: topics[0].partitions.length, configs };
    }),
  delete_topic: (kafka, job) =>
    administer(kafka, async (admin) => {
      await admin.deleteTopics({ topics: [job.topic] });
      return null;
    }),
};

async function main() {
  registerCodecs(await new Promise((resolve) => ZstdCodec.run(resolve)));
  const kafka = new Kafka({
    brokers: [process.argv[2]],
    clientId: "kafkajs",
    logLevel: logLevel.NOTHING,
  });
  for await (const line of readline.createInterface({ input: process.stdin })) {
    let answer;
    try {
      const job = JSON.parse(line);
      answer = { ok: await OPERATIONS[job.op](kafka, job) };
    } catch (error) {
      const kind = KINDS[error.type] ?? KINDS[error.cause?.type] ?? "other";
      answer = { error: kind, message: String(error.stack ?? error) };
    }
    process.stdout.write(`${JSON.stringify(answer)}\n`);
  }
  process.exit(0);
}

main();
