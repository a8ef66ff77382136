import { generateKeyPairSync, type KeyObject } from 'node:crypto';
import dgram, { type Socket } from 'node:dgram';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Clock } from './async.ts';

interface Timer {
  readonly at: number;
  readonly run: () => void;
}

/** A clock that moves only in `run`. Its random numbers come from a seed. */
export class FakeClock implements Clock {
  #now = 0;
  #seed: number;
  /** The next one last. Of those at one time, the one that was set first runs first. */
  readonly #timers: Timer[] = [];

  constructor(seed = 1) {
    this.#seed = seed;
  }

  readonly now = () => this.#now;

  /** Lehmer's generator with the multiplier of Park and Miller. */
  readonly random = () => {
    this.#seed = (this.#seed * 48_271) % 2_147_483_647;
    return this.#seed / 2_147_483_647;
  };

  after(ms: number, run: () => void): () => void {
    const timer = { at: this.#now + ms, run };
    this.#timers.splice(this.#placeOf(timer.at), 0, timer);
    return () => {
      const index = this.#timers.indexOf(timer, this.#placeOf(timer.at));
      if (index >= 0) this.#timers.splice(index, 1);
    };
  }

  /** Calls what falls due, in order, and lets promises settle after each call. */
  async run(ms: number): Promise<void> {
    const end = this.#now + ms;
    await settle();
    for (let next = this.#timers.at(-1); next && next.at < end; next = this.#timers.at(-1)) {
      this.#timers.pop();
      this.#now = Math.max(this.#now, next.at);
      next.run();
      await settle();
    }
    this.#now = end;
  }

  /** Returns the index of the first timer that runs at this time or earlier. A search by halves: a fleet has thousands of timers. */
  #placeOf(at: number): number {
    let [low, high] = [0, this.#timers.length];
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.#timers[middle] as Timer).at > at) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

/** Lets promises that are ready run their course. */
function settle(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/**
 * Calls what must cost what the length of its text costs. It takes a second or less: only what grows with the square of the length takes 30 s of
 * the processor, which counts none of the time in which others have it.
 */
export function costsItsLength<T>(act: () => T): T {
  const before = process.cpuUsage();
  const value = act();
  const { user, system } = process.cpuUsage(before);
  const seconds = (user + system) / 1e6;
  if (seconds > 30) throw new Error(`it took ${seconds} s of the processor`);
  return value;
}

/** Gives constants other values, until it is disposed of. */
export function changed<T extends object>(constants: T, values: Partial<T>): Disposable {
  const names = Object.keys(values) as (keyof T)[];
  const before = Object.fromEntries(names.map((name) => [name, constants[name]]));
  Object.assign(constants, values);
  return { [Symbol.dispose]: () => void Object.assign(constants, before) };
}

/** A key pair on P-256. */
export function keyPair(): { readonly publicKey: KeyObject; readonly privateKey: KeyObject } {
  return generateKeyPairSync('ec', { namedCurve: 'P-256' });
}

/** What a server says of a name: its addresses, that there is no such name, that it does not know, or nothing. */
export type Said = readonly string[] | 'missing' | 'unsure' | 'silent';

const A = 1;
const RCODES = { unsure: 2, missing: 3 } as const;
const QUESTION_AT = 12;

/** A DNS server, which answers questions for IPv4 addresses (RFC 1035). */
export class NameServer {
  /** The names that were asked for, once for each question. */
  readonly asked: string[] = [];
  readonly #socket: Socket = dgram.createSocket('udp4');
  readonly #says: (name: string) => Said;

  constructor(says: (name: string) => Said) {
    this.#says = says;
  }

  /** Default: any free port of 127.0.0.1. */
  async listen(address = '127.0.0.1', port = 0): Promise<this> {
    this.#socket.on('message', (question, from) => {
      const answer = this.#answer(question);
      if (answer) this.#socket.send(answer, from.port, from.address);
    });
    this.#socket.bind(port, address);
    await once(this.#socket, 'listening');
    return this;
  }

  get address(): string {
    const { address, port } = this.#socket.address();
    return `${address}:${port}`;
  }

  close(): void {
    this.#socket.close();
  }

  #answer(question: Buffer): Buffer | undefined {
    const labels: string[] = [];
    let at = QUESTION_AT;
    for (let size = question[at] ?? 0; size > 0; size = question[at] ?? 0) {
      labels.push(question.toString('latin1', at + 1, at + 1 + size));
      at += size + 1;
    }
    const type = question.readUInt16BE(at + 1);
    const name = labels.join('.').toLowerCase();
    if (type === A) this.asked.push(name);
    const said = this.#says(name);
    if (said === 'silent') return undefined;
    const head = Buffer.from(question.subarray(0, at + 5));
    // An answer, from a server that recurses; nothing but the question follows.
    head.writeUInt16BE(0x8180 | (typeof said === 'string' ? RCODES[said] : 0), 2);
    head.fill(0, 6, QUESTION_AT);
    const addresses = type === A && typeof said !== 'string' ? said : [];
    head.writeUInt16BE(addresses.length, 6);
    const records = addresses.map((each) => {
      const record = Buffer.from([0xc0, QUESTION_AT, 0, A, 0, 1, 0, 0, 0, 1, 0, 4, 0, 0, 0, 0]);
      record.set(each.split('.').map(Number), 12);
      return record;
    });
    return Buffer.concat([head, ...records]);
  }
}

/** Files as of /etc, by name, in a directory of their own. */
export function etcOf(files: Readonly<Record<string, string>>) {
  const dir = mkdtempSync(join(tmpdir(), 'isth-etc-'));
  const write = (name: string, text: string) => writeFileSync(join(dir, name), text);
  for (const [name, text] of Object.entries(files)) write(name, text);
  return { dir, write, [Symbol.dispose]: () => rmSync(dir, { recursive: true }) };
}

export interface BinaryHeader {
  readonly version?: number;
  /** 0 is LOCAL, 1 is PROXY. */
  readonly command?: number;
  /** Family and transport. Default: TCP over the source's family. */
  readonly transport?: number;
  /** The source's address in hexadecimal, and its port. */
  readonly source?: readonly [address: string, port: number];
  /** What follows the addresses. */
  readonly fields?: Buffer;
}

/** A header of version 2 of the PROXY protocol. */
export function binaryHeader({ version = 2, command = 1, transport, source, fields }: BinaryHeader): Buffer {
  const address = Buffer.from(source?.[0] ?? '', 'hex');
  const ports = Buffer.alloc(source ? 4 : 0);
  if (source) ports.writeUInt16BE(source[1]);
  const rest = Buffer.concat([address, Buffer.alloc(address.length), ports, fields ?? Buffer.alloc(0)]);
  const fixed = Buffer.from('\r\n\r\n\0\r\nQUIT\n????', 'latin1');
  fixed.writeUInt8((version << 4) | command, 12);
  fixed.writeUInt8(transport ?? (address.length === 16 ? 0x21 : 0x11), 13);
  fixed.writeUInt16BE(rest.length, 14);
  return Buffer.concat([fixed, rest]);
}

/** The runtime's own: a test may replace the global ones by a mock. */
const { setImmediate, setTimeout, clearTimeout } = globalThis;

const FIRST_POLL_MS = 2;
/** The time to the next check, as a share of the time waited so far: a wait of 1 s checks 20 times. */
const POLL_SHARE = 1 / 4;
/**
 * The longest time between two checks. A condition may ask a program for its metrics, so a long wait checks less often and leaves the
 * processors to the programs.
 */
const LONGEST_POLL_MS = 200;

export interface Wait {
  /** Milliseconds; default 60 s. */
  readonly deadline?: number;
  /** Time between two checks, in milliseconds. Default: a quarter of the time waited so far, from 2 to 200. 0: each tick of the event loop. */
  readonly every?: number;
  /** What is waited for, for the text of the error. A function is called when the wait has failed. Default: the condition's source. */
  readonly what?: What;
  /** Returns why it is pointless to wait longer, if it is. */
  readonly hopeless?: () => string | undefined;
}

type What = string | (() => string);

/** Far longer than anything here takes on a slow and busy machine. It ends what hangs, and does not judge speed. */
export const DEADLINE_MS = 60_000;

/**
 * Waits for a condition, and returns its value once that is neither undefined, null nor false.
 * A condition that throws has not come true yet; its last error becomes the cause when time runs out.
 */
export async function until<T>(condition: () => T | Promise<T>, wait: Wait | What = {}): Promise<True<T>> {
  const { deadline = DEADLINE_MS, every, what = String(condition), hopeless } = asWait(wait);
  const start = performance.now();
  for (;;) {
    const lost = hopeless?.();
    const { value, cause } = await attempt(condition);
    if (isTrue(value)) return value;
    const ms = Math.round(performance.now() - start);
    if (lost || ms >= deadline) throw new Error(waited(ms, what, lost ?? cause), { cause });
    await pause(every ?? Math.min(Math.max(ms * POLL_SHARE, FIRST_POLL_MS), LONGEST_POLL_MS));
  }
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => void (ms === 0 ? setImmediate(resolve) : setTimeout(resolve, ms)));
}

export type True<T> = Exclude<T, undefined | null | false>;

function isTrue<T>(value: T): value is True<T> {
  return value !== undefined && value !== null && value !== false;
}

async function attempt<T>(condition: () => T | Promise<T>): Promise<{ value?: T; cause?: unknown }> {
  try {
    return { value: await condition() };
  } catch (cause) {
    return { cause };
  }
}

/** Waits until an assertion holds, and returns what it returned; fails with the assertion's own error. */
export async function eventually<T>(
  assertion: () => T | Promise<T>,
  wait: Pick<Wait, 'deadline' | 'every'> = {},
): Promise<T> {
  let failure: unknown;
  const holds = async () => {
    try {
      return { value: await assertion() };
    } catch (error) {
      failure = error;
      return undefined;
    }
  };
  const held = await until(holds, { ...wait, what: 'assertion' }).catch(() => {
    throw failure;
  });
  return held.value;
}

/** Waits for a promise until a deadline. */
export async function within<T>(promise: Promise<T>, wait: Wait | What = {}): Promise<T> {
  const { deadline = DEADLINE_MS, what = 'a promise' } = asWait(wait);
  let timer: ReturnType<typeof setTimeout> | undefined;
  const expired = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(waited(deadline, what))), deadline);
  });
  try {
    return await Promise.race([promise, expired]);
  } finally {
    clearTimeout(timer);
  }
}

function asWait(wait: Wait | What): Wait {
  return typeof wait === 'object' ? wait : { what: wait };
}

function waited(ms: number, what: What, cause?: unknown): string {
  const reason = cause === undefined ? '' : ` (${cause instanceof Error ? cause.message : cause})`;
  return `waited ${ms} ms in vain for ${typeof what === 'string' ? what : what()}${reason}`;
}
