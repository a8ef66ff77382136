#!/usr/bin/env node
import { fileURLToPath } from 'node:url';
import { run } from '../../../scripts/node.mjs';

await run(fileURLToPath(new URL('../src/main.ts', import.meta.url)));
