import { createConnection } from 'node:net';

const DEADLINE = 60_000;

/** Redis' own counts of commands and bytes, and its memory in bytes. */
export interface RedisUse {
  readonly commands: number;
  readonly bytes: number;
  readonly memory: number;
}

export async function redisUse(port: number): Promise<RedisUse> {
  const info = await redisInfo(port);
  const field = (name: string) => Number(new RegExp(`^${name}:(\\d+)`, 'm').exec(info)?.[1] ?? Number.NaN);
  return {
    commands: field('total_commands_processed'),
    bytes: field('total_net_input_bytes') + field('total_net_output_bytes'),
    memory: field('used_memory'),
  };
}

/** The answer is a bulk string: its length on its own line, then that many bytes. */
function redisInfo(port: number): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = createConnection({ host: '127.0.0.1', port });
    const settle = (outcome: () => void) => {
      clearTimeout(timer);
      socket.destroy();
      outcome();
    };
    const timer = setTimeout(() => settle(() => reject(new Error('redis did not answer INFO in time'))), DEADLINE);
    let seen = '';
    socket.on('connect', () => socket.write('INFO\r\n'));
    socket.on('error', (error) => settle(() => reject(error)));
    socket.setEncoding('latin1').on('data', (text) => {
      seen += text;
      const length = /^\$(\d+)\r\n/.exec(seen);
      if (length && seen.length >= length[0].length + Number(length[1])) settle(() => resolve(seen));
    });
  });
}
