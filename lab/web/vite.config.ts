import { defineConfig } from "vite";
import { viteSingleFile } from "vite-plugin-singlefile";

// The page that `--mode` names, as one file with script and style inside, into which a program puts the data:
// `millrace-lab report` into figures.html, `dist/report.js` into sessions.html.
export default defineConfig(({ mode }) => ({
  root: "page",
  plugins: [viteSingleFile({ removeViteModuleLoader: true })],
  build: { outDir: "../dist", emptyOutDir: false, target: "es2022", chunkSizeWarningLimit: 1000, rollupOptions: { input: `page/${mode}.html` } },
}));
