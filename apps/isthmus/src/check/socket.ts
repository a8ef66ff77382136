import { once } from 'node:events';
import { lstatSync } from 'node:fs';
import { connect } from 'node:net';
import { dirname } from 'node:path';
import { type Result, reportOf } from '@isthmus/findings';
import { faultOfSocketPath, hiddenSocket } from '@isthmus/flags';
import { messageOf } from '../exit.ts';

/** How long a server may take to accept a connection, in milliseconds. */
const ACCEPT_MS = 5_000;

const report = reportOf('socket');

/** Checks the unix socket on which a server accepts API servers. An API server that finds none waits 30 s, and says nothing. */
export async function checkSocket(path: string | undefined): Promise<Result[]> {
  if (path === undefined) return [];
  const about = `--uds-name ${path}`;
  const fault = faultOfSocketPath(path);
  const mount = `mount the same directory, ${dirname(path)}, in the pods of the server and of the API server`;
  if (fault !== undefined) return [report.fail(about, fault, mount)];
  const hidden = hiddenSocket(path);
  const seen = hidden === undefined ? [] : [report.fail(about, hidden, mount)];
  return [...seen, await listening(about, path)];
}

async function listening(about: string, path: string): Promise<Result> {
  if (!lstatSync(path, { throwIfNoEntry: false })) {
    return report.fail(about, 'there is no socket', 'start the server with this --uds-name');
  }
  const socket = connect(path);
  try {
    await once(socket, 'connect', { signal: AbortSignal.timeout(ACCEPT_MS) });
    return report.pass(about, 'a server listens');
  } catch (error) {
    const refused = (error as NodeJS.ErrnoException).code === 'ECONNREFUSED';
    const detail = refused ? 'nobody listens: a server that has ended left it' : messageOf(error);
    return report.fail(about, detail, refused ? 'start the server: it replaces the socket' : 'check its permissions');
  } finally {
    socket.destroy();
  }
}
