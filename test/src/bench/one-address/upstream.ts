// In the API server's place: skips a ClientHello, then does what the client's next byte says.
import { createServer, type Socket } from 'node:net';
import { HELLO_BYTES } from './hello.ts';
import { ECHO } from './messages.ts';

const CHUNK = Buffer.alloc(256 * 1024, '.');

function serve(socket: Socket): void {
  let skip = HELLO_BYTES;
  let echoes: boolean | undefined;
  const fill = () => {
    while (!socket.destroyed && socket.write(CHUNK));
  };
  socket
    .on('error', () => {})
    .on('data', (chunk: Buffer) => {
      let rest = chunk.subarray(Math.min(skip, chunk.length));
      skip -= chunk.length - rest.length;
      if (rest.length === 0) return;
      if (echoes === undefined) {
        echoes = rest.toString('latin1', 0, 1) === ECHO;
        rest = rest.subarray(1);
        if (!echoes) socket.on('drain', fill);
        if (!echoes) fill();
      }
      if (echoes && rest.length > 0) socket.write(rest);
    });
}

const server = createServer({ noDelay: true }, serve);
server.listen({ host: '127.0.0.1', port: 0, backlog: 4096 }, () => {
  process.send?.((server.address() as { port: number }).port);
});
process.once('disconnect', () => process.exit(0));
