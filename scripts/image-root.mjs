// The last step of the Containerfile's build: `node scripts/image-root.mjs DIR` puts what the image holds below DIR, and nothing else. Like
// everything that it imports, it needs only node:* and npm.
import { imageRoot } from './lib/image-root.mjs';

imageRoot(process.argv[2] ?? 'rootfs');
