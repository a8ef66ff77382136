import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

/** A small HTTP server for callers to reach. It answers with its name and the address that dialled it. */
export interface DemoDestination extends AsyncDisposable {
  readonly port: number;
}

export async function startDestination(): Promise<DemoDestination> {
  const server = createServer((request, response) => {
    const { remoteAddress, remotePort } = request.socket;
    response.setHeader('content-type', 'text/plain');
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
