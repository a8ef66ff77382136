import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { setTimeout } from 'node:timers/promises';
import { DEMO } from './defaults.ts';

/**
 * A small HTTP server for callers to reach. It answers with its name and the address that dialled it, or with a download that takes a
 * while.
 */
export interface DemoDestination extends AsyncDisposable {
  readonly port: number;
}

export async function startDestination(): Promise<DemoDestination> {
  const server = createServer((request, response) => {
    const { remoteAddress, remotePort } = request.socket;
    response.setHeader('content-type', 'text/plain');
    const [, seconds] = DOWNLOAD.exec(request.url ?? '') ?? [];
    if (seconds !== undefined) {
      download(response, Math.min(Number(seconds), DEMO.downloadSeconds));
      return;
    }
    response.end(
      `Hello from the demo destination: ${request.method} ${request.url}, dialled from ${remoteAddress}:${remotePort}\n`,
    );
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(0, '127.0.0.1', resolve);
  });
  return {
    port: (server.address() as AddressInfo).port,
    async [Symbol.asyncDispose]() {
      const closed = new Promise((resolve) => server.close(resolve));
      server.closeAllConnections();
      await closed;
    },
  };
}

const CHUNK = Buffer.alloc(DEMO.chunkBytes, 'Isthmus ');

/** `/download/60` lasts a minute. No download lasts longer than ten. */
const DOWNLOAD = /^\/download\/([1-9]\d{0,2})$/;

function download(response: ServerResponse, seconds: number): void {
  const count = seconds * DEMO.chunksPerSecond;
  response.setHeader('content-length', count * CHUNK.length);
  // A caller that goes away ends it.
  pipeline(Readable.from(chunks(count)), response).catch(() => {});
}

async function* chunks(count: number): AsyncIterable<Buffer> {
  for (let sent = 0; sent < count; sent++) {
    yield CHUNK;
    await setTimeout(1000 / DEMO.chunksPerSecond);
  }
}
