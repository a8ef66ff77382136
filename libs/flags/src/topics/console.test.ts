import { rmSync } from 'node:fs';
import { after, test } from 'node:test';
import { commandLines, refuses } from '../testing/command-lines.ts';

const { dir, server } = await commandLines();
after(() => rmSync(dir, { recursive: true }));

test('the console is on, off or auto, and links to traces by a URL with the id in it', () => {
  refuses(server, [
    ['--console=true', '--console: unknown value "true": want auto, on, off'],
    ['--console-trace-url=javascript:alert({trace_id})', /^--console-trace-url: bad URL .*: want http:/],
    ['--console-trace-url=https://', /^--console-trace-url: bad URL "https:\/\/"/],
    ['--console-trace-url=https://jaeger.example/trace', /has no {trace_id}: put it where the id belongs$/],
  ]);
  server('--console=on', '--console-trace-url=https://jaeger.example/trace/{trace_id}');
});
