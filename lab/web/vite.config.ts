import { defineConfig } from "vite";
import { viteSingleFile } from "vite-plugin-singlefile";

// One file with script and style inside; `millrace-lab report` puts the figures into it.
export default defineConfig({
  root: "page",
  plugins: [viteSingleFile({ removeViteModuleLoader: true })],
  build: { outDir: "../dist", emptyOutDir: true, target: "es2022", chunkSizeWarningLimit: 1000 },
});
