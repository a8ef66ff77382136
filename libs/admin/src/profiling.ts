import type { ServerResponse } from 'node:http';
import { pipeline } from 'node:stream/promises';
import { getHeapSnapshot } from 'node:v8';
import { onceClosed } from '@isthmus/runtime';
import { NOT_FOUND, type Page, send } from '@isthmus/service';
import { ADMIN } from './defaults.ts';

const INDEX = `/debug/pprof/profile?seconds=30  CPU profile (.cpuprofile: Chrome DevTools, VS Code, speedscope)
/debug/pprof/heap                heap snapshot (.heapsnapshot: Chrome DevTools); the process stops while it is taken
`;
const BAD_SECONDS: Page = {
  status: 400,
  body: `bad seconds: want more than 0, up to ${ADMIN.longestProfileSeconds}\n`,
};
const BUSY: Page = { status: 409, body: 'another profile is being taken\n' };

/** Serves profiles under upstream's paths, in V8's formats, one at a time. */
export class Profiler {
  #busy = false;

  /** Answers a request below /debug/pprof/. */
  async serve(response: ServerResponse, url: URL): Promise<void> {
    const name = url.pathname.slice('/debug/pprof/'.length);
    if (name === '') return send(response, { status: 200, body: INDEX });
    if (name !== 'profile' && name !== 'heap') return send(response, NOT_FOUND);
    const seconds = Number(url.searchParams.get('seconds') ?? ADMIN.profileSeconds);
    if (!(seconds > 0 && seconds <= ADMIN.longestProfileSeconds)) return send(response, BAD_SECONDS);
    if (this.#busy) return send(response, BUSY);
    this.#busy = true;
    try {
      if (name === 'heap') await sendHeap(response);
      else await send(response, cpuProfile(response, seconds * 1000));
    } finally {
      this.#busy = false;
    }
  }
}

async function sendHeap(response: ServerResponse): Promise<void> {
  response.writeHead(200, attachment('heap.heapsnapshot'));
  // A client that leaves ends the snapshot. That is no failure.
  await pipeline(getHeapSnapshot(), response).catch(() => response.destroy());
}

async function cpuProfile(response: ServerResponse, ms: number): Promise<Page> {
  const { Session } = await import('node:inspector/promises');
  const session = new Session();
  session.connect();
  try {
    await session.post('Profiler.enable');
    await session.post('Profiler.start');
    await closedOrPassed(response, ms);
    const { profile } = await session.post('Profiler.stop');
    return { status: 200, body: JSON.stringify(profile), headers: attachment('cpu.cpuprofile') };
  } finally {
    session.disconnect();
  }
}

/** Waits for `ms`, or until the client closes the connection. */
function closedOrPassed(response: ServerResponse, ms: number): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      response.off('close', done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    onceClosed(response, done);
  });
}

function attachment(name: string): Record<string, string> {
  return { 'content-type': 'application/json', 'content-disposition': `attachment; filename="${name}"` };
}
