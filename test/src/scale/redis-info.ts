import { execFileSync } from 'node:child_process';

/** Redis' own counts of commands and bytes, and its memory in bytes. */
export interface RedisUse {
  readonly commands: number;
  readonly bytes: number;
  readonly memory: number;
}

export function redisUse(port: number): RedisUse {
  const info = execFileSync('redis-cli', ['-p', String(port), 'info'], { encoding: 'utf8' });
  const field = (name: string) => Number(new RegExp(`^${name}:(\\d+)`, 'm').exec(info)?.[1] ?? Number.NaN);
  return {
    commands: field('total_commands_processed'),
    bytes: field('total_net_input_bytes') + field('total_net_output_bytes'),
    memory: field('used_memory'),
  };
}
