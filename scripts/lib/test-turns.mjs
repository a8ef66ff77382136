import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Schedule } from './test-schedule.mjs';

/** Names the socket of a shared schedule in the environment. */
export const TURNS = 'ISTHMUS_TEST_TURNS';

/** Runs commands that share one schedule: those that `run` starts with the environment that it gets. */
export async function sharingTurns(run, schedule = new Schedule()) {
  const directory = mkdtempSync(join(tmpdir(), 'isthmus-turns-'));
  const path = join(directory, 'socket');
  const server = createServer((socket) => void serve(socket, schedule));
  try {
    await once(server.listen(path), 'listening');
    return await run({ [TURNS]: path });
  } finally {
    server.close();
    rmSync(directory, { recursive: true, force: true });
  }
}

/** A connection is one turn: it asks with one line of JSON, gets an answer when its turn has come, and closes when its turn has ended. */
async function serve(socket, schedule) {
  const closed = new Promise((resolve) => void socket.once('error', resolve).once('close', resolve));
  const asked = await Promise.race([once(socket, 'data'), closed]);
  if (!Array.isArray(asked)) return;
  const end = await schedule.turn(JSON.parse(asked[0]));
  if (!socket.destroyed) socket.write('go\n');
  await closed;
  end();
}

/** Returns the schedule that this process shares with others, if there is one. */
export function sharedSchedule(path = process.env[TURNS]) {
  return path ? { turn: (job) => turn(path, job) } : undefined;
}

async function turn(path, job) {
  const socket = connect(path);
  socket.write(`${JSON.stringify(job)}\n`);
  await once(socket, 'data');
  // If the process that keeps the schedule has gone, this one is about to be ended too.
  socket.on('error', () => {});
  return () => socket.destroy();
}
