// Transactions of KafkaJS: sessions, each a producer and a member of a group.
"use strict";

const PARTITION = 0;
const FETCH_WAIT_MS = 100;
const SESSION_TIMEOUT_MS = 6000;
const HEARTBEAT_MS = 500;
const LAST = "last";

const sessions = new Map();

// Messages of a consumer one at a time: the next is taken before more are read.
class Taking {
  constructor() {
    this.waiting = [];
    this.offered = [];
    this.ended = false;
  }

  offer(taken) {
    if (this.ended) {
      return Promise.resolve();
    }
    return new Promise((accepted) => {
      const taker = this.waiting.shift();
      if (taker) {
        taker(taken);
        accepted();
      } else {
        this.offered.push({ taken, accepted });
      }
    });
  }

  next() {
    const offer = this.offered.shift();
    if (offer) {
      offer.accepted();
      return Promise.resolve(offer.taken);
    }
    return new Promise((taker) => this.waiting.push(taker));
  }

  end() {
    this.ended = true;
    this.offered.forEach((offer) => offer.accepted());
  }
}

async function within(work, timeoutMs) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error("the records did not come in time")), timeoutMs);
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}

async function join(kafka, topic, settings) {
  const consumer = kafka.consumer({
    maxWaitTimeInMs: FETCH_WAIT_MS,
    allowAutoTopicCreation: false,
    sessionTimeout: SESSION_TIMEOUT_MS,
    heartbeatInterval: HEARTBEAT_MS,
    ...settings,
  });
  const taking = new Taking();
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  await consumer.run({
    autoCommit: false,
    eachMessage: ({ partition, message }) => taking.offer({ partition, message }),
  });
  return { consumer, taking };
}

async function leave(member) {
  member?.taking.end();
  await member?.consumer.disconnect();
}

async function open(kafka, job) {
  const producer = kafka.producer({
    transactionalId: job.transactionalId,
    idempotent: true,
    maxInFlightRequests: 1,
  });
  await producer.connect();
  // It gets its epoch when its first transaction begins; an empty one is not sent.
  await (await producer.transaction()).abort();
  sessions.set(job.session, { producer, source: job.topic, group: job.group });
  return null;
}

async function finish(session, end) {
  if (end === "commit") {
    await session.transaction.commit();
  } else if (end === "abort") {
    await session.transaction.abort();
    // The next member begins at the committed offsets.
    await leave(session.member);
    session.member = undefined;
  }
}

const operations = (tell) => ({
  open_session: open,
  process: async (kafka, job) => {
    const session = sessions.get(job.session);
    session.member ??= await join(kafka, session.source, { groupId: session.group });
    const taken = [];
    while (taken.length < job.count) {
      taken.push(await within(session.member.taking.next(), job.timeoutMs));
    }
    session.transaction = await session.producer.transaction();
    const messages = taken.map(({ message }) => ({
      key: message.key,
      value: Buffer.concat([Buffer.from("done "), message.value]),
      partition: PARTITION,
    }));
    await session.transaction.send({ topic: job.topic, messages, acks: -1 });
    const next = new Map(taken.map((each) => [each.partition, BigInt(each.message.offset) + 1n]));
    const partitions = [...next].map(([partition, at]) => ({ partition, offset: String(at) }));
    await session.transaction.sendOffsets({
      consumerGroupId: session.group,
      topics: [{ topic: session.source, partitions }],
    });
    await finish(session, job.end);
    return taken.map(({ partition, message }) => ({ ...tell(message), partition }));
  },
  finish: async (_, job) => {
    await finish(sessions.get(job.session), job.end);
    return null;
  },
  close_session: async (_, job) => {
    await leave(sessions.get(job.session).member);
    sessions.delete(job.session);
    return null;
  },
  read_all: async (kafka, job) => {
    const readUncommitted = job.isolation === "read_uncommitted";
    const groupId = `alone-${process.pid}-${Math.random()}`;
    const member = await join(kafka, job.topic, { groupId, readUncommitted });
    const read = [];
    try {
      while (read.at(-1)?.message.value.toString() !== LAST) {
        read.push(await within(member.taking.next(), job.timeoutMs));
      }
    } finally {
      await leave(member);
    }
    return read.map(({ partition, message }) => ({ ...tell(message), partition }));
  },
});

module.exports = { operations };
