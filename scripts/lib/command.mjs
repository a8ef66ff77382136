import { spawn } from 'node:child_process';
import { accessSync, constants, statSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { ROOT } from './workspace.mjs';

const MINUTE = 60_000;

/**
 * Runs a command without a shell and without input. Resolves with its status and output; never rejects.
 * `show` passes the output through as it arrives. A command that still runs after `timeout` is killed and has failed.
 */
export function command([program, ...args], { show = false, timeout = 10 * MINUTE, env = {}, cwd = ROOT } = {}) {
  return new Promise((resolve) => {
    const child = spawn(program, args, { cwd, env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'pipe'] });
    let output = '';
    let late = false;
    const timer = setTimeout(() => {
      late = true;
      child.kill('SIGKILL');
    }, timeout);
    const done = (status, reason = '') => {
      clearTimeout(timer);
      resolve({ status, output: output + reason });
    };
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding('utf8').on('data', (text) => {
        output += text;
        if (show) process.stdout.write(text);
      });
    }
    child.once('error', (error) => done(127, `cannot run ${program}: ${error.message}\n`));
    child.once('close', (status, signal) => {
      if (late) done(124, `\n${program} was still running after ${timeout / 1000} s and was killed\n`);
      else done(status ?? 1, signal ? `\n${program} was ended by ${signal}\n` : '');
    });
  });
}

/** A program of one of our dependencies. */
export function bin(name) {
  return join(ROOT, 'node_modules', '.bin', name);
}

/** Returns npm as it was started, or the one on the PATH if a script was started by hand. */
export function npm(...args) {
  const path = process.env.npm_execpath;
  return path?.endsWith('.js') ? [process.execPath, path, ...args] : ['npm', ...args];
}

/** Whether a program is on the PATH. */
export function installed(program) {
  return (process.env.PATH ?? '').split(delimiter).some((dir) => {
    try {
      const path = join(dir, program);
      accessSync(path, constants.X_OK);
      return statSync(path).isFile();
    } catch {
      return false;
    }
  });
}

export function seconds(ms) {
  return `${(ms / 1000).toFixed(1)} s`;
}
