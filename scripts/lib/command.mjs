import { spawn, spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { ROOT } from './workspace.mjs';

const MINUTE = 60_000;

/** How long a late command has to end what it started, before it is killed. */
const GRACE_MS = 2000;
const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'];
/** Commands that run. Each leads a process group, so that what it started ends with it. */
const running = new Set();

/**
 * Runs a command without a shell and without input. Resolves with its status and output; never rejects.
 * Of its output, the lines for which `show` returns true are passed through as they arrive. A command that still runs after `timeout` (ms) is
 * ended with all that it started, and has failed with status 124.
 */
export function command([program, ...args], { show, timeout = 10 * MINUTE, env = {}, cwd = ROOT } = {}) {
  return new Promise((resolve) => {
    const stdio = ['ignore', 'pipe', 'pipe'];
    const child = spawn(program, args, { cwd, env: { ...process.env, ...env }, stdio, detached: true });
    let output = '';
    let late = false;
    let timer = setTimeout(() => {
      late = true;
      // A script among them ends the groups of its own commands.
      endGroup(child, 'SIGTERM');
      timer = setTimeout(() => {
        endGroup(child, 'SIGKILL');
        // What left the group may hold them open.
        child.stdout.destroy();
        child.stderr.destroy();
      }, GRACE_MS);
    }, timeout);
    const done = (status, reason = '') => {
      clearTimeout(timer);
      ended(child);
      resolve({ status, output: output + reason });
    };
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding('utf8').on('data', (text) => {
        output += text;
      });
      if (show) createInterface({ input: stream }).on('line', (line) => show(line) && console.log(line));
    }
    child.once('error', (error) => done(127, `cannot run ${program}: ${error.message}\n`));
    child.once('close', (status, signal) => {
      if (late) done(124, `\n${program} was still running after ${timeout / 1000} s and was killed\n`);
      else done(status ?? 1, signal ? `\n${program} was ended by ${signal}\n` : '');
    });
    started(child);
  });
}

function started(child) {
  if (running.size === 0) for (const signal of SIGNALS) process.on(signal, pass);
  running.add(child);
}

function ended(child) {
  running.delete(child);
  if (running.size === 0) for (const signal of SIGNALS) process.off(signal, pass);
}

/** Passes a signal on, since the terminal sends Ctrl-C to our own group only. Then it does to us what it does without this listener. */
function pass(signal) {
  for (const child of running) endGroup(child, signal);
  if (process.listenerCount(signal) > 1) return;
  process.off(signal, pass);
  process.kill(process.pid, signal);
}

function endGroup({ pid }, signal) {
  try {
    if (pid !== undefined) process.kill(-pid, signal);
  } catch (error) {
    if (error.code !== 'ESRCH') throw error;
  }
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
  return spawnSync('sh', ['-c', 'command -v "$0"', program], { stdio: 'ignore' }).status === 0;
}

export function seconds(ms) {
  return `${(ms / 1000).toFixed(1)} s`;
}
