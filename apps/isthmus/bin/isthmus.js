#!/usr/bin/env node
import { launch } from '@isthmus/service/launch';

await launch(new URL('../dist/', import.meta.url));
