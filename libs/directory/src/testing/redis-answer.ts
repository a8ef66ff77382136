import { addAbortSignal, type Duplex } from 'node:stream';

/**
 * Sends inline commands, each after the answer to the one before, and returns the last answer: the text of a bulk string,
 * otherwise the first line. One reader takes all that arrives: between two `once(stream, 'data')` a chunk is lost if it comes in
 * the same turn, as the records of a TLS answer do.
 */
export async function ask(stream: Duplex, lines: readonly string[], signal: AbortSignal): Promise<string> {
  const waiting = [...lines];
  const send = () => stream.write(`${waiting.shift()}\r\n`);
  addAbortSignal(signal, stream);
  send();
  let seen = Buffer.alloc(0);
  for await (const chunk of stream as AsyncIterable<Buffer>) {
    seen = Buffer.concat([seen, chunk]);
    const answer = wholeAnswer(seen);
    if (answer === undefined) continue;
    if (waiting.length === 0) return answer;
    seen = Buffer.alloc(0);
    send();
  }
  throw new Error(`the server closed the connection before its whole answer came: ${seen.toString()}`);
}

function wholeAnswer(seen: Buffer): string | undefined {
  const end = seen.indexOf('\r\n');
  if (end < 0) return undefined;
  const head = seen.toString('utf8', 0, end);
  // $-1 is nil, and has no text.
  if (!head.startsWith('$') || head === '$-1') return head;
  const [start, length] = [end + 2, Number(head.slice(1))];
  return seen.length < start + length + 2 ? undefined : seen.toString('utf8', start, start + length);
}
