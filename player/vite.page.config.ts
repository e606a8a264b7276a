import { defineConfig } from "vite";

// The page that a browser opens: static files, relative addresses, so any directory of any server can hold it.
export default defineConfig({
  root: "page",
  base: "./",
  build: { outDir: "../dist/page", emptyOutDir: true, target: "es2022", chunkSizeWarningLimit: 1200 },
});
