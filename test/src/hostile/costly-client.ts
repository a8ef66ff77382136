import { connect } from 'node:net';
import tls from 'node:tls';
import { costlyChain } from '@isthmus/certificates/testing';

/**
 * An attacker without a credential: shows costly certificates to a port, again and again, until it is ended. Arguments: port, how many
 * connections at a time, from how many addresses of this machine.
 */
const [port = 0, atATime = 1, sources = 1] = process.argv.slice(2).map(Number);
const secureContext = tls.createSecureContext(costlyChain(60));
let next = 0;

function attack(): void {
  const localAddress = `127.0.0.${1 + (next++ % sources)}`;
  const below = connect({ port, host: '127.0.0.1', localAddress }).on('error', () => {});
  const socket = tls.connect({ socket: below, secureContext, rejectUnauthorized: false });
  socket.on('error', () => {}).resume();
  socket.once('close', () => setImmediate(attack));
}

for (let i = 0; i < atATime; i++) attack();
