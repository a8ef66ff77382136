import assert from 'node:assert/strict';
import { EventEmitter } from 'node:events';
import type { Socket } from 'node:net';
import { test } from 'node:test';
import { Admitted } from './admitted.ts';

/** A connection that only comes and goes. */
function connection(remoteAddress: string): Socket {
  const socket = Object.assign(new EventEmitter(), {
    remoteAddress,
    destroyed: false,
    destroy() {
      socket.destroyed = true;
      socket.emit('close');
    },
  });
  return socket as unknown as Socket;
}

test('operators of one tenant leave connections to others, from however many addresses', () => {
  const refused: string[] = [];
  const admitted = new Admitted({ most: 20, mostOfSource: 5 }, (_remote, { message }) => refused.push(message));
  const enter = (tenant: string | undefined, count: number) => {
    const sockets = Array.from({ length: count }, (_, n) => connection(`10.0.${n}.${tenant?.length ?? 0}`));
    return sockets.filter((socket) => admitted.enter(socket, tenant));
  };
  const acme = enter('acme', 20);
  assert.equal(acme.length, 10);
  assert.match(refused[0] ?? '', /^10 connections are open, and those of tenant acme leave too few to others/);
  assert.deepEqual([enter('b', 20).length, enter(undefined, 20).length], [5, 5]);
  acme[0]?.destroy();
  assert.equal(enter(undefined, 20).length, 1);
});
