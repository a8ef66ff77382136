// The last step of the Containerfile's build: `node scripts/image-root.mjs DIR SYSTEM` puts what the image holds below DIR, and nothing else.
// Below SYSTEM is Node for the image's processor, with its libraries. Like everything that it imports, it needs only node:* and npm.
import { imageRoot } from './lib/image-root.mjs';

const [directory = 'rootfs', system = '/'] = process.argv.slice(2);
imageRoot(directory, system);
