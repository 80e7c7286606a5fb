// Runs a program compiled for WASI with its arguments: `cargo test`'s runner of `just wasm`.
import { readFile } from 'node:fs/promises';
import { WASI } from 'node:wasi';
const wasi = new WASI({ version: 'preview1', args: process.argv.slice(2), env: process.env });
const module = await WebAssembly.compile(await readFile(process.argv[2]));
process.exit(wasi.start(await WebAssembly.instantiate(module, wasi.getImportObject())));
