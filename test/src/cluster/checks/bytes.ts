import { type ChildProcess, spawn } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import http from 'node:http';
import type { Readable, Writable } from 'node:stream';
import { kubectlArgs } from '../kubernetes.ts';

/** Its length is prime, so bytes that are lost, repeated or swapped change the sum. */
const BLOCK = randomBytes(65_521);

/** Returns the SHA-256 of all that a stream gives, and how many bytes that was. */
export async function sumOf(stream: Readable): Promise<{ readonly sum: string; readonly bytes: number }> {
  const hash = createHash('sha256');
  let bytes = 0;
  for await (const chunk of stream as AsyncIterable<Buffer>) {
    hash.update(chunk);
    bytes += chunk.length;
  }
  return { sum: hash.digest('hex'), bytes };
}

/** Writes this many bytes, as fast as they are taken, and ends the stream. @returns their SHA-256 */
export async function send(stream: Writable, bytes: number): Promise<string> {
  const hash = createHash('sha256');
  for (let left = bytes; left > 0; left -= BLOCK.length) {
    const block = left < BLOCK.length ? BLOCK.subarray(0, left) : BLOCK;
    hash.update(block);
    if (!stream.write(block)) await once(stream, 'drain');
  }
  stream.end();
  return hash.digest('hex');
}

/** Starts kubectl with pipes. It is killed after the deadline. */
export function piped(args: readonly string[], deadline: number): ChildProcess & { stdin: Writable; stdout: Readable } {
  const [program, ...rest] = kubectlArgs(args);
  return spawn(program, rest, { stdio: ['pipe', 'pipe', 'inherit'], timeout: deadline, killSignal: 'SIGKILL' });
}

/** GET or POST on this machine. The probe's sum of the bytes that it sends comes in a trailer. */
export async function request(
  port: number,
  path: string,
  body?: number,
): Promise<{ sum: string; bytes: number; theirs: string }> {
  const sending = http.request({
    port,
    path,
    host: '127.0.0.1',
    agent: false,
    method: body === undefined ? 'GET' : 'POST',
    timeout: 60_000,
  });
  sending.on('timeout', () => sending.destroy(new Error(`${path}: nothing for a minute`)));
  const answered = once(sending, 'response') as Promise<[http.IncomingMessage]>;
  const sent = body === undefined ? sending.end() && '' : await send(sending, body);
  const [response] = await answered;
  if (body === undefined) {
    const got = await sumOf(response);
    return { ...got, theirs: String(response.trailers['x-sha256']) };
  }
  let text = '';
  for await (const chunk of response.setEncoding('utf8')) text += chunk;
  return { sum: sent, bytes: body, theirs: text.trim() };
}
