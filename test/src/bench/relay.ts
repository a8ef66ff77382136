// Forwards every connection to one port and does nothing else. A chain of these is the lowest cost of a plane with as many processes
// in this language.
import { connect, createServer } from 'node:net';

const [to = ''] = process.argv.slice(2);

const server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
  const onward = connect({ port: Number(to), host: '127.0.0.1', allowHalfOpen: true, noDelay: true });
  socket.on('error', () => onward.destroy());
  onward.on('error', () => socket.destroy());
  socket.once('close', () => onward.destroy());
  onward.once('close', () => socket.destroy());
  socket.pipe(onward);
  onward.pipe(socket);
});
server.listen({ host: '127.0.0.1', port: 0, backlog: 4096 }, () => {
  process.send?.((server.address() as { port: number }).port);
});
process.once('disconnect', () => process.exit(0));
