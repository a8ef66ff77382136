import { connect } from 'node:net';

const PROBE_MS = 1000;

/** Whether a path on a health port answers 200. */
export async function answersOk(port: number, path: '/healthz' | '/readyz'): Promise<boolean> {
  const headers = { connection: 'close' };
  const response = await fetch(`http://127.0.0.1:${port}${path}`, { headers, signal: AbortSignal.timeout(PROBE_MS) });
  await response.arrayBuffer();
  return response.status === 200;
}

/** Whether a Redis answers PING. */
export function redisAnswers(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => socket.write('PING\r\n'));
    const end = (answer: boolean) => {
      socket.destroy();
      resolve(answer);
    };
    socket.setTimeout(PROBE_MS, () => end(false));
    socket.once('error', () => end(false));
    socket.once('data', (data) => end(data.toString().startsWith('+PONG')));
  });
}
